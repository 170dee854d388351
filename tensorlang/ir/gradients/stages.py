"""A definition as its gradient reads it: stages, their sums, and calls worth storing.

Where the derivative of a summand is made of a call in it, as that of `exp(x - top)`,
the calls get a stage of their own, so that each is computed once:

    total[i] = sum over k of exp(x[i, k])        e[i, k] = exp(x[i, k])
                                                 total[i] = sum over k of e[i, k]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tensorlang.errors import OperatorError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import blocks, free_vars
from tensorlang.ir.definitions.assembly import reachable
from tensorlang.ir.definitions.frontend import Stage, Tensor, compute
from tensorlang.ir.gradients.derivatives import gradients
from tensorlang.ir.gradients.sums import KnownSum
from tensorlang.ir.visit import (
    fresh,
    rebuild,
    rewriter,
    substitute,
    transform_statements,
    walk,
)

SUMS: Final = ("sum", "sums")
SHIFT: Final = "top"  # `rows.top_of`: what is subtracted before exp cancels


@dataclass(slots=True)
class Forward:
    """The stages of a definition, producers first."""

    # buffers that depend on the inputs to differentiate with respect to
    needed: set[ir.Buffer]
    stages: list[Stage] = field(default_factory=list)
    # tensors that they read and make, by buffer
    tensors: dict[ir.Buffer, Tensor] = field(default_factory=dict)
    sums: list[KnownSum] = field(default_factory=list)  # sums that they compute
    taken: set[str] = field(default_factory=set)  # names of all buffers

    @classmethod
    def of(cls, results: Iterable[Tensor], wrt: Iterable[ir.Buffer]) -> Forward:
        """The stages that results need."""
        stages, made = reachable(results), cls(set(wrt))
        named = [b for s in stages for b in (*s.outputs, *(t.buffer for t in s.inputs))]
        made.taken |= {buffer.name for buffer in named}
        for stage in stages:
            made._note(stage)
        return made

    def _note(self, stage: Stage) -> None:
        inputs = [self.tensors.setdefault(t.buffer, t) for t in stage.inputs]
        stage = replace(stage, inputs=tuple(inputs))
        (block, *others), sums = blocks(stage.nest), []
        if not others:
            sums = [n for n in walk(block.body) if isinstance(n, ir.Reduce)]
        if any(each.reducer.name == SHIFT for each in sums):
            self._add(stage)
            return
        if any(tensor.buffer in self.needed for tensor in inputs):
            self.needed |= {*stage.outputs}
            if len(sums) == 1 and sums[0].reducer.name in SUMS:
                stage = self._with_calls_stored(stage, block, sums[0])
        self._add(stage)

    def _add(self, stage: Stage) -> None:
        self.stages.append(stage)
        self.tensors |= {out: Tensor(out, stage) for out in stage.outputs}
        self.sums += _sums_of(stage)

    def _with_calls_stored(self, stage: Stage, block: ir.Block, by: ir.Reduce) -> Stage:
        """A stage that sums, with the calls that its derivative repeats stored."""
        values = [value for _, _, value in written(block, {})]
        loads = [
            node
            for value in values
            for node in walk(value)
            if isinstance(node, ir.Load) and node.buffer in self.needed
        ]
        seeds = [ir.Var(f"seed{n}", value.dtype) for n, value in enumerate(values)]
        pairs = list(zip(values, seeds, strict=True))
        slopes = gradients(pairs, [*dict.fromkeys(loads)])
        again = {n for slope in slopes for n in walk(slope) if isinstance(n, ir.Call)}
        axes = {axis.var: axis.extent for axis in block.axes}
        stored: dict[ir.Expr, ir.Expr] = {}
        for call in dict.fromkeys(n for v in values for n in walk(v) if n in again):
            assert isinstance(call, ir.Call)
            place = _place(call, axes)
            if place is not None and len(loads) == 1:
                tensor = self._stored(call, place, axes, stage)
                stored[call] = ir.Load(tensor.buffer, place)
        if not stored:
            return stage
        new = tuple(replaced(value, stored) for value in values)
        nest = _with_body(stage.nest, replace(by, values=new))
        read = [self.tensors[each.buffer] for each in stored.values()]  # type: ignore[attr-defined]
        return replace(stage, nest=nest, inputs=(*stage.inputs, *read))

    def _stored(
        self,
        call: ir.Call,
        place: Sequence[ir.Var],
        axes: Mapping[ir.Var, ir.Expr],
        stage: Stage,
    ) -> Tensor:
        """A call at each index, in a stage of its own."""

        def element(*i: ir.Var) -> ir.Expr:
            return substitute(call, dict(zip(place, i, strict=True)))

        name = fresh(call.name, self.taken)
        made: Tensor = compute([axes[var] for var in place], element, name)
        assert made.stage is not None
        first = replace(made.stage, inputs=stage.inputs)
        self.needed.add(made.buffer)
        self._add(first)
        return self.tensors[made.buffer]


def _place(call: ir.Call, axes: Mapping[ir.Var, ir.Expr]) -> tuple[ir.Var, ...] | None:
    """The index of the elements that a call is made of, if that is all axes."""
    for node in walk(call):
        if isinstance(node, ir.Load) and {*node.indices} == axes.keys():
            narrow = node.dtype.bits < call.dtype.bits and len(axes) > 2
            whole = len(node.indices) == len(axes)
            free = all(free_vars(e).isdisjoint(axes) for e in axes.values())
            return node.indices if whole and free and not narrow else None  # type: ignore[return-value]
    return None


def _with_body(nest: ir.Stmt, body: ir.Reduce) -> ir.Stmt:
    """The nest with another body of its only block."""

    def change(stmt: ir.Stmt) -> ir.Stmt:
        return replace(stmt, body=body) if isinstance(stmt, ir.Block) else stmt

    return transform_statements(nest, change)


def replaced(value: ir.Expr, by: Mapping[ir.Expr, ir.Expr]) -> ir.Expr:
    """An expression with some subexpressions replaced."""

    @rewriter
    def visit(node: ir.Node) -> ir.Node:
        if isinstance(node, ir.Expr) and node in by:
            return by[node]
        return rebuild(node, visit)

    return visit(value)


def _sums_of(stage: Stage) -> Iterator[KnownSum]:
    """The sums that a stage computes."""
    block, *others = blocks(stage.nest)
    reduces = [node for node in walk(block.body) if isinstance(node, ir.Reduce)]
    if others or len(reduces) != 1 or reduces[0].reducer.name not in SUMS:
        return
    summed = {a.var: a.extent for a in block.axes if a.kind == "reduction"}
    for out, place, value in written(block, {}):
        if all(isinstance(index, ir.Var) for index in place):
            yield KnownSum(out, place, summed, value)  # type: ignore[arg-type]


def written(
    block: ir.Block, axes: Mapping[ir.Var, ir.Expr]
) -> list[tuple[ir.Buffer, tuple[ir.Expr, ...], ir.Expr]]:
    """The buffers, indices and values that a block writes, with its axes replaced.

    Raises:
        OperatorError: it reduces by something else than a sum.
    """
    named = {**axes}
    found: list[tuple[ir.Buffer, tuple[ir.Expr, ...], ir.Expr]] = []
    for node in walk(block.body):
        match node:
            case ir.Let(var=var, value=value):
                named[var] = substitute(value, named)
            case ir.Store(buffer=buffer, indices=indices, value=value):
                found.append((buffer, indices, value))
            case ir.Reduce(reducer=reducer, buffers=buffers, indices=indices):
                if reducer.name not in SUMS:
                    raise OperatorError(
                        f"a reduction by {reducer.name} has no derivative; give the "
                        "operator a gradient of its own"
                    )
                found += [
                    (b, indices, value)
                    for b, value in zip(buffers, node.values, strict=True)
                ]
    return [
        (b, tuple(substitute(i, named) for i in at), substitute(value, named))
        for b, at, value in found
    ]
