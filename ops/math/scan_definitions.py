"""Cumulative sums along rows `[m, n]` or `[m, n, i]`, as ordered loops.

f32 accumulates in f64, narrower floats in f32, integers in 64 bits. Long rows `[m, n]`
are scanned in three stages: sums of the parts, their exclusive scan, then all parts in
parallel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorlang import ir
from tensorlang.frozen import frozen

if TYPE_CHECKING:
    from tensorlang.ir.definitions.chunks import Parts


def cumsum(rows: ir.rows.Rows, made: ir.DType | None, *, reverse: bool) -> ir.Tensor:
    """Inclusive prefix sums of each row, in a type; suffix sums if `reverse`."""
    x = rows.array
    kind = summed_in(x.dtype)
    y = ir.Buffer("y", made or result_type(x.dtype), x.buffer.shape)
    if x.ndim > 2 or not rows.is_long:
        return _short(rows, y, kind, reverse=reverse)
    parts = rows.parts()
    sums = parts.fold("sum", lambda _, __, at: x[at].cast(kind), "sums")
    starts = _starts(sums.every, reverse=reverse)
    return _in_parts(parts, y, starts, reverse=reverse)


def summed_in(dtype: ir.DType) -> ir.DType:
    """The accumulation type of a cumulative sum."""
    if dtype.is_float:
        return ir.f64 if dtype.bits >= 32 else ir.f32
    return ir.u64 if dtype.kind == "uint" else ir.i64


def result_type(dtype: ir.DType) -> ir.DType:
    """The result type of a cumulative sum."""
    return dtype if dtype.is_float else summed_in(dtype)


def _short(
    rows: ir.rows.Rows, y: ir.Buffer, kind: ir.DType, *, reverse: bool
) -> ir.Tensor:
    """Each row in a single sequential scan."""
    x = rows.array
    state = rows.row(lambda _: ir.as_expr(0, kind), "state")
    names = ("r", "c")[: state.ndim]
    axes = [
        ir.nests.axis(name, extent)
        for name, extent in zip(names, state.buffer.shape, strict=True)
    ]
    step = ir.nests.axis("k", rows.length, "ordered")
    row = tuple(axis.var for axis in axes)
    at = rows.length - 1 - step.var if reverse else step.var
    body = _step(x, y, state.buffer, row, (row[0], at, *row[1:]))
    made = ir.nests.nest("y", [*axes, step], body)
    return ir.Tensor(y, ir.Stage(made, (y,), (state, x)))


def _step(
    x: ir.Tensor, y: ir.Buffer, state: ir.Buffer, row: ir.rows.Index, at: ir.rows.Index
) -> ir.Stmt:
    """Add one element to the running sum and store it."""
    total = ir.Var("sum", state.dtype)
    return ir.seq(
        ir.Let(total, ir.Load(state, row) + x[at].cast(state.dtype)),
        ir.Store(state, row, total),
        ir.Store(y, at, total.cast(y.dtype)),
    )


def _starts(sums: ir.Tensor, *, reverse: bool) -> ir.Tensor:
    """The exclusive scan of the part sums: the initial state of each part."""
    number, *others = sums.buffer.shape
    state = ir.Buffer("before", sums.dtype, tuple(others))
    start = ir.Buffer("start", sums.dtype, sums.buffer.shape)
    clear = [ir.nests.axis(f"z{n}", extent) for n, extent in enumerate(others)]
    zero = ir.as_expr(0, sums.dtype)
    first = ir.nests.nest(
        "before", clear, ir.Store(state, tuple(a.var for a in clear), zero)
    )
    axes = [ir.nests.axis(f"b{n}", extent) for n, extent in enumerate(others)]
    step = ir.nests.axis("q", number, "ordered")
    row = tuple(axis.var for axis in axes)
    part = number - 1 - step.var if reverse else step.var
    body = ir.seq(
        ir.Store(start, (part, *row), ir.Load(state, row)),
        ir.Store(state, row, ir.Load(state, row) + sums[(part, *row)]),
    )
    nests = ir.seq(first, ir.nests.nest("start", [*axes, step], body))
    return ir.Tensor(start, ir.Stage(nests, (state, start), (sums,)))


@frozen
class _Side:
    """The full parts, or the remainder: first part, number of parts, their length."""

    name: str
    first: ir.Expr
    count: ir.Expr
    length: ir.Expr


def _in_parts(
    parts: Parts, y: ir.Buffer, starts: ir.Tensor, *, reverse: bool
) -> ir.Tensor:
    """Scan all parts in parallel, full ones and the remainder."""
    n, length = parts.rows.length, parts.length
    whole = n // length
    sides = (
        _Side("", ir.as_expr(0), whole, ir.as_expr(length)),
        _Side("_rest", whole, parts.number - whole, n - whole * length),
    )
    states = [
        ir.Buffer(f"state{s.name}", starts.dtype, starts.buffer.shape) for s in sides
    ]
    nests = [
        nest
        for side, state in zip(sides, states, strict=True)
        for nest in _of_side(parts, y, state, starts, side, reverse=reverse)
    ]
    return ir.Tensor(
        y, ir.Stage(ir.seq(nests), (*states, y), (starts, parts.rows.array))
    )


def _of_side(
    parts: Parts,
    y: ir.Buffer,
    state: ir.Buffer,
    starts: ir.Tensor,
    side: _Side,
    *,
    reverse: bool,
) -> list[ir.Stmt]:
    """Nests that initialise the state of each part and scan it."""

    def axes_of(letter: str) -> tuple[list[ir.Axis], ir.rows.Index]:
        made = [ir.nests.axis(f"{letter}{side.name}", side.count)]
        for n, extent in enumerate(starts.buffer.shape[1:]):
            made.append(ir.nests.axis(f"{letter}{n}{side.name}", extent))
        first, *others = (axis.var for axis in made)
        return made, (side.first + first, *others)

    axes, part = axes_of("f")
    clear = ir.nests.nest(
        f"state{side.name}", axes, ir.Store(state, part, starts[part])
    )
    axes, part = axes_of("p")
    step = ir.nests.axis(f"k{side.name}", side.length, "ordered")
    place = side.length - 1 - step.var if reverse else step.var
    (m,) = parts.row(part)
    at = (ir.as_expr(m), part[0] * parts.length + place)
    body = _step(parts.rows.array, y, state, part, at)
    return [clear, ir.nests.nest(f"y{side.name}", [*axes, step], body)]
