"""Definitions in tensor-expression style: describe an element, get plain IR.

    x = placeholder((64, 784), "f32", "x")
    w = placeholder((512, 784), "f32", "w")
    k = reduce_axis(784, "k")
    y = compute((64, 512), lambda i, j: sum(x[i, k] * w[j, k], k), "y")
    dense = function("dense", [x, w], [y])

A `compute` becomes one block. Its body is ordinary Python that builds expressions;
subexpressions that are built once and used twice become `Let`s, so unrolled rounds stay
linear in size.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, overload

from tensorlang.errors import IRError
from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import names
from tensorlang.ir.definitions.reducers import builtin
from tensorlang.ir.definitions.sizes import TRACED, Size, sizes_of
from tensorlang.ir.dtypes import DType, as_dtype, i64
from tensorlang.ir.simplification import sharing
from tensorlang.ir.visit import fresh, substitute, walk

Shape: TypeAlias = Sequence[ir.ExprLike]


@dataclass(slots=True)
class _Body:
    """Tensors read and reduction axes used while the body of a `compute` runs."""

    inputs: list[Tensor] = field(default_factory=list)
    axes: list[ir.Var] = field(default_factory=list)


_BODY: ContextVar[_Body | None] = ContextVar("body", default=None)


@frozen(eq=False)
class Tensor:
    """A named array of a definition: indexing gives a load; `stage` computes it.

    `sizes` are the extents of the call being traced, if any. Elements are converted to
    `read_as`, if it is given, where they are loaded.
    """

    buffer: ir.Buffer
    stage: Stage | None = None
    sizes: tuple[Size, ...] | None = None
    read_as: DType | None = None

    def __getitem__(self, indices: ir.ExprLike | tuple[Any, ...]) -> ir.Expr:
        given = indices if isinstance(indices, tuple) else (indices,)
        body = _BODY.get()
        if body is not None:
            body.inputs.append(self)
        made = ir.Load(self.buffer, tuple(ir.as_expr(index) for index in given))
        return made if self.read_as is None else made.cast(self.read_as)

    def __tensorlang_op__(
        self, op: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> object:
        """Refuse to call an operator on a tensor without data, with its own error."""
        return op.inlined(args, kwargs)

    @property
    def shape(self) -> tuple[Any, ...]:
        """The extents: i64 expressions, or sizes while a call is traced."""
        return self.buffer.shape if self.sizes is None else self.sizes

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.buffer.ndim

    @property
    def dtype(self) -> DType:
        """The type that elements are read in."""
        return self.read_as or self.buffer.dtype


@frozen(eq=False)
class ReduceAxis(ir.Operand):
    """An axis to reduce over; usable in expressions like a number."""

    name: str
    extent: ir.Expr

    @property
    def var(self) -> ir.Var:
        """The variable of the axis."""
        made = ir.Var(self.name, i64)
        body = _BODY.get()
        if body is not None:
            body.axes.append(made)
        return made

    def expression(self) -> ir.Var:
        """The variable of the axis."""
        return self.var

    def __index__(self) -> int:
        raise IRError(f"the axis {self.name} has no value while the program is built")


@frozen(eq=False)
class Reduction(ir.Operand):
    """The result of `sum(...)` and the like: only as the whole body of a `compute`."""

    reducer: str | ir.Reducer
    values: tuple[ir.Expr, ...]
    axes: tuple[ReduceAxis, ...]

    def expression(self) -> ir.Expr:
        """A reduction has no expression.

        Raises:
            IRError: always.
        """
        raise IRError(
            "a reduction is the whole body of a compute; give it a compute of its own "
            "and use the elements of that"
        )


@frozen(eq=False)
class Stage:
    """One block with its loops, its outputs, and the tensors it reads."""

    nest: ir.Stmt
    outputs: tuple[ir.Buffer, ...]
    inputs: tuple[Tensor, ...] = ()


Body: TypeAlias = "ir.ExprLike | tuple[ir.ExprLike, ...]"


def placeholder(
    shape: Shape, dtype: DType | str = "f32", name: str = "x", *, scope: str = "global"
) -> Tensor:
    """An input array of the given shape (numbers or i64 expressions) and type."""
    extents = tuple(map(ir.as_expr, shape))
    buffer = ir.Buffer(name, as_dtype(dtype), extents, scope)
    return Tensor(buffer, None, sizes_of(shape))


def reshaped(tensor: Tensor, shape: Shape) -> Tensor:
    """The same elements in row-major order with another shape.

    An input is read in the new shape from here on; a computed tensor is returned in it.
    """
    sizes = sizes_of(shape)
    if tensor.stage is not None:
        return replace(tensor, sizes=sizes)
    held = placeholder(tuple(shape), tensor.buffer.dtype, tensor.buffer.name)
    made = replace(held, read_as=tensor.read_as)
    facts = TRACED.get()
    if facts is not None:
        facts.views[tensor.buffer.name] = made
    return made


def size(name: str) -> ir.Var:
    """A symbolic size: an i64 parameter of the function, usable in shapes."""
    return ir.Var(name, i64)


def scalar(name: str, dtype: DType | str = "f32") -> ir.Var:
    """A scalar parameter of the function, passed at each call."""
    return ir.Var(name, as_dtype(dtype))


def reduce_axis(extent: ir.ExprLike, name: str = "k") -> ReduceAxis:
    """An axis of `extent` steps to reduce over with `sum`, `max`, `argmax`, ...

    If created inside the body of a `compute`, its extent may depend on the indices,
    such as `starts[i + 1] - starts[i]` for the rows of a sparse matrix.

    Raises:
        IRError: the extent is no integer, or negative.
    """
    steps = ir.as_expr(extent)
    negative = isinstance(steps, ir.Const) and steps.value < 0
    if not steps.dtype.is_integer or negative:
        raise IRError(
            f"the extent of a reduction is a whole number from 0 on, not {steps!r} "
            f"of {steps.dtype}"
        )
    return ReduceAxis(name, steps.cast(i64))


def reduction(
    reducer: str | ir.Reducer,
    values: ir.ExprLike | tuple[ir.ExprLike, ...],
    axis: ReduceAxis | Sequence[ReduceAxis],
) -> Reduction:
    """`values`, one per component of the reducer's state, reduced over the axes."""
    axes = tuple(axis) if isinstance(axis, (list, tuple)) else (axis,)
    if not all(isinstance(each, ReduceAxis) for each in axes):
        raise IRError(
            f"a reduction takes axes made by reduce_axis, not {axis!r}; for two "
            "elements use ir.maximum and ir.minimum"
        )
    if len({each.name for each in axes}) < len(axes):
        listed = ", ".join(each.name for each in axes)
        raise IRError(
            f"the axes of a reduction need different names, not {listed}: give "
            "reduce_axis a second argument"
        )
    given = values if isinstance(values, tuple) else (values,)
    return Reduction(reducer, tuple(ir.as_expr(value) for value in given), axes)


def sum(value: ir.ExprLike, axis: ReduceAxis | Sequence[ReduceAxis]) -> Reduction:
    """The sum of `value` over the axes."""
    return reduction("sum", value, axis)


def max(value: ir.ExprLike, axis: ReduceAxis | Sequence[ReduceAxis]) -> Reduction:
    """The maximum of `value` over the axes."""
    return reduction("max", value, axis)


def min(value: ir.ExprLike, axis: ReduceAxis | Sequence[ReduceAxis]) -> Reduction:
    """The minimum of `value` over the axes."""
    return reduction("min", value, axis)


def prod(value: ir.ExprLike, axis: ReduceAxis | Sequence[ReduceAxis]) -> Reduction:
    """The product of `value` over the axes."""
    return reduction("prod", value, axis)


def argmax(value: ir.ExprLike, index: ir.ExprLike, axis: ReduceAxis) -> Reduction:
    """The maximum `value` and its lowest `index`: two outputs."""
    return reduction("argmax", (value, index), axis)


def argmin(value: ir.ExprLike, index: ir.ExprLike, axis: ReduceAxis) -> Reduction:
    """The minimum `value` and its lowest `index`: two outputs."""
    return reduction("argmin", (value, index), axis)


@overload
def compute(
    shape: Shape,
    body: Callable[..., Body],
    name: str = "y",
    *,
    kinds: Mapping[str, str] | None = None,
) -> Tensor: ...
@overload
def compute(
    shape: Shape,
    body: Callable[..., Body],
    name: tuple[str, ...],
    *,
    kinds: Mapping[str, str] | None = None,
) -> tuple[Tensor, ...]: ...
def compute(
    shape: Shape,
    body: Callable[..., Body],
    name: str | tuple[str, ...] = "y",
    *,
    kinds: Mapping[str, str] | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """The array whose element at the lambda's indices is what `body` returns.

    Args:
        shape: The extents; as many as `body` has parameters, which name the loops.
        body: Returns an expression, a tuple of them (several outputs of one shape), or
            a reduction of any number of components. A `*name` takes all indices.
        name: The name of the output, or one name each. The first one names the block.
        kinds: Axis kinds by parameter name, for those not `spatial`: `ordered`, ...

    Returns:
        One `Tensor`, or a tuple of them if `body` returned several components.
    """
    given = (name,) if isinstance(name, str) else name
    if not isinstance(shape, (tuple, list)):
        raise IRError(f"a shape is a tuple of extents, as (n,), not {shape!r:.80}")
    extents = tuple(ir.as_expr(extent) for extent in shape)
    indices = _indices(body, len(extents))
    building = _Body()
    token = _BODY.set(building)
    try:
        with sharing.labelling() as labels:
            result = body(*indices)
    finally:
        _BODY.reset(token)
    values = _values(result)
    _folds_all(given[0], building.axes, values, result)
    if len(given) != len(values):
        given = tuple(f"{given[0]}{n}" for n in range(len(values)))
    buffers = tuple(
        ir.Buffer(n, value.dtype, extents)
        for n, value in zip(given, values, strict=True)
    )
    folded = result if isinstance(result, Reduction) else None
    stmt = _block_body(buffers, indices, values, folded, labels)
    axes = [
        (index, (kinds or {}).get(index.name[1:], "spatial"), extent)
        for index, extent in zip(indices, extents, strict=True)
    ]
    axes += [(a.var, "reduction", a.extent) for a in (folded.axes if folded else ())]
    nest = _nest(given[0], axes, stmt, _line(body))
    stage = Stage(nest, buffers, tuple(building.inputs))
    tensors = tuple(Tensor(buffer, stage, sizes_of(shape)) for buffer in buffers)
    return tensors[0] if len(tensors) == 1 else tensors


def _indices(body: Callable[..., Body], rank: int) -> tuple[ir.Var, ...]:
    parameters = inspect.signature(body).parameters
    given = tuple(parameters)
    if all(p.default is not p.empty for p in list(parameters.values())[rank:]):
        given = given[:rank]  # the rest are bound by defaults, like closures in loops
    if any(p.kind is p.VAR_POSITIONAL for p in parameters.values()):
        given = tuple(f"{given[0]}{n}" for n in range(rank))
    if len(given) != rank:
        raise IRError(f"a shape of {rank} dimensions needs {rank} indices, not {given}")
    return tuple(ir.Var(f"v{index}", i64) for index in given)


def _values(result: Body) -> tuple[ir.Expr, ...]:
    if isinstance(result, Reduction):
        return result.values
    if isinstance(result, tuple):
        return tuple(ir.as_expr(value) for value in result)
    return (ir.as_expr(result),)


def _folds_all(
    name: str, used: Sequence[ir.Var], values: tuple[ir.Expr, ...], result: Body
) -> None:
    """Refuse a reduction axis that no reduction reduces over."""
    folded = result.axes if isinstance(result, Reduction) else ()
    stray = {*used} - {axis.var for axis in folded}
    if not stray:
        return
    for part in (part for value in values for part in walk(value)):
        if isinstance(part, ir.Var) and part in stray:
            raise IRError(
                f"{name} uses the reduction axis {part.name} outside of a reduction "
                f"over it; reduce it, as in sum(..., {part.name})"
            )


def _block_body(
    buffers: tuple[ir.Buffer, ...],
    indices: tuple[ir.Var, ...],
    values: tuple[ir.Expr, ...],
    folded: Reduction | None,
    labels: sharing.Labels,
) -> ir.Stmt:
    taken = {buffer.name for buffer in buffers} | {index.name for index in indices}
    taken |= {axis.name for axis in folded.axes} if folded else set()
    lets, results = sharing.lets(values, labels, taken)
    if folded is None:
        if len(results) > 1:  # an in-place update reads everything before it writes
            more, results = _name_all(results, buffers, taken)
            lets += more
        stores = (
            ir.Store(buffer, indices, value)
            for buffer, value in zip(buffers, results, strict=True)
        )
        return ir.seq(lets, stores)
    dtypes = tuple(value.dtype for value in values)
    reducer = folded.reducer
    known = builtin(reducer, dtypes) if isinstance(reducer, str) else reducer
    if known is None:
        raise IRError(f"no reducer {reducer!r} has a state of {dtypes}")
    return ir.seq(lets, (ir.Reduce(known, buffers, indices, tuple(results)),))


def _name_all(
    values: Sequence[ir.Expr], buffers: Sequence[ir.Buffer], taken: set[str]
) -> tuple[list[ir.Let], list[ir.Expr]]:
    made: list[ir.Let] = []
    variables: list[ir.Expr] = []
    for value, buffer in zip(values, buffers, strict=True):
        if isinstance(value, ir.Var):
            variables.append(value)
            continue
        made.append(
            ir.Let(ir.Var(fresh(f"new_{buffer.name}", taken), value.dtype), value)
        )
        variables.append(made[-1].var)
    return made, variables


def _line(body: Callable[..., Body]) -> str:
    """The source location of a function."""
    code = getattr(body, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


def _nest(
    name: str, axes: Sequence[tuple[ir.Var, str, ir.Expr]], body: ir.Stmt, line: str
) -> ir.Stmt:
    """The block in one serial loop per axis; loops drop the axis's leading v."""
    taken = names(body) | {var.name for var, _, _ in axes}
    loops, block_axes, renamed = [], [], {}
    counted: dict[ir.Var, ir.Expr] = {}
    for var, kind, given in axes:
        extent = substitute(given, counted)
        if kind == "reduction":
            axis, wanted = ir.Var(fresh(f"v{var.name}", taken), i64), var.name
            renamed[var] = axis
        else:
            axis, wanted = var, var.name[1:]
        loop = var if kind == "reduction" else ir.Var(fresh(wanted, taken), i64)
        counted[axis] = loop
        loops.append((loop, extent))
        block_axes.append(ir.Axis(axis, kind, extent, loop))
    inside = substitute(body, renamed)
    nest: ir.Stmt = ir.Block(name, tuple(block_axes), inside, line=line)
    for loop, extent in reversed(loops):
        nest = ir.For(loop, extent, "serial", nest)
    return nest
