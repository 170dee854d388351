"""Assemble a function from tensors: the stages its outputs need, in order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensorlang.errors import IRError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import binders
from tensorlang.ir.definitions.frontend import Stage, Tensor
from tensorlang.ir.visit import fresh, replace_buffers, substitute, walk


def function(
    name: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    *,
    inplace: Sequence[tuple[Tensor, Tensor]] = (),
    scalars: Sequence[ir.Var] = (),
) -> ir.Function:
    """The function that computes `outputs` from `inputs`.

    Args:
        name: The function's name, an identifier.
        inputs: Placeholders, in calling order.
        outputs: Computed tensors, in calling order after the inputs.
        inplace: Pairs (placeholder, tensor): the tensor overwrites the placeholder, an
            `inout` parameter between inputs and outputs.
        scalars: Scalar parameters, in calling order; symbolic sizes and scalars used
            but not listed follow in order of appearance.
    """
    targets = {new.buffer: old.buffer for old, new in inplace}
    stages = reachable([*outputs, *(new for _, new in inplace)])
    params = [ir.Param(tensor.buffer, "in") for tensor in inputs]
    params += [ir.Param(old.buffer, "inout") for old, _ in inplace]
    params += [ir.Param(tensor.buffer, "out") for tensor in outputs]
    known = {param.buffer for param in params} | set(targets)
    made = [buffer for stage in stages for buffer in stage.outputs]
    _distinct(name, [param.buffer for param in params], made)
    _all_there(name, stages, known)
    temporaries = [ir.Alloc(buffer) for buffer in made if buffer not in known]
    nests = [replace_buffers(stage.nest, targets) for stage in stages]
    taken = {buffer.name for buffer in [*made, *(p.buffer for p in params)]}
    taken |= {var.name for var in scalars}
    body = ir.seq(temporaries, [_with_own_names(nest, taken) for nest in nests])
    return _with_scalars(ir.Function(name, tuple(params), tuple(scalars), body))


def _distinct(
    name: str, params: Sequence[ir.Buffer], made: Sequence[ir.Buffer]
) -> None:
    held: dict[str, ir.Buffer] = {}
    for buffer in [*params, *made]:
        if held.setdefault(buffer.name, buffer) is not buffer:
            raise IRError(
                f"{name}: two tensors are called {buffer.name}; give each its own name"
            )


def _all_there(name: str, stages: Sequence[Stage], known: set[ir.Buffer]) -> None:
    for tensor in (tensor for stage in stages for tensor in stage.inputs):
        if tensor.stage is None and tensor.buffer not in known:
            raise IRError(
                f"{name} reads {tensor.buffer}, which is neither computed nor one of "
                "its inputs; take it as a parameter"
            )


def reachable(outputs: Iterable[Tensor]) -> list[Stage]:
    """The stages that the outputs need, producers first."""
    order: dict[int, Stage] = {}

    def visit(tensor: Tensor) -> None:
        stage = tensor.stage
        if stage is None or id(stage) in order:
            return
        for read in stage.inputs:
            visit(read)
        order[id(stage)] = stage

    for tensor in outputs:
        visit(tensor)
    return list(order.values())


def _with_own_names(nest: ir.Stmt, taken: set[str]) -> ir.Stmt:
    """The nest with loops, axes and lets renamed if their names are taken."""
    apart = {var: ir.Var(fresh(var.name, taken), var.dtype) for var in bound(nest)}
    return substitute(nest, {old: new for old, new in apart.items() if old != new})


def bound(nest: ir.Stmt) -> dict[ir.Var, None]:
    """The variables of loops, axes and lets, in order of appearance."""
    return dict.fromkeys(
        n.var for n in walk(nest) if isinstance(n, (ir.For, ir.Let, ir.Axis))
    )


def _with_scalars(made: ir.Function) -> ir.Function:
    """The function with all free variables as scalar parameters."""
    listed = dict.fromkeys(made.scalars)
    bound = set(binders(made))
    for node in walk(made):
        if isinstance(node, ir.Var) and node not in bound:
            listed.setdefault(node)
    return ir.Function(made.name, made.params, tuple(listed), made.body)
