"""Cumulative sums along rows `[m, n]` or `[m, n, i]`, as ordered loops.

f32 accumulates in f64, narrower floats in f32, integers in 64 bits. Long rows `[m, n]`
are scanned in three stages: sums of the parts, their exclusive scan, then all parts in
parallel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensorlang.ir import as_expr, f64, i64
from tensorlang.ir.dtypes import f32, u64
from tensorlang.ir.frontend import Stage, Tensor
from tensorlang.ir.nests import axis, nest
from tensorlang.ir.nodes import Axis, Buffer, Let, Load, Store, Var, seq

if TYPE_CHECKING:
    from tensorlang.ir.chunks import Parts
    from tensorlang.ir.dtypes import DType
    from tensorlang.ir.nodes import Expr, Stmt
    from tensorlang.ir.rows import Index, Rows


def cumsum(rows: Rows, *, reverse: bool) -> Tensor:
    """Inclusive prefix sums of each row; suffix sums if `reverse`."""
    x = rows.array
    kind, made = summed_in(x.dtype), result_type(x.dtype)
    y = Buffer("y", made, x.buffer.shape)
    if x.ndim > 2 or not rows.is_long:
        return _short(rows, y, kind, reverse=reverse)
    parts = rows.parts()
    sums = parts.fold("sum", lambda _, __, at: x[at].cast(kind), "sums")
    starts = _starts(sums.every, reverse=reverse)
    return _in_parts(parts, y, starts, reverse=reverse)


def summed_in(dtype: DType) -> DType:
    """The accumulation type of a cumulative sum."""
    if dtype.is_float:
        return f64 if dtype.bits >= 32 else f32
    return u64 if dtype.kind == "uint" else i64


def result_type(dtype: DType) -> DType:
    """The result type of a cumulative sum."""
    return dtype if dtype.is_float else summed_in(dtype)


def _short(rows: Rows, y: Buffer, kind: DType, *, reverse: bool) -> Tensor:
    """Each row in a single sequential scan."""
    x = rows.array
    state = rows.row(lambda _: as_expr(0, kind), "state")
    names = ("r", "c")[: state.ndim]
    axes = [
        axis(name, extent)
        for name, extent in zip(names, state.buffer.shape, strict=True)
    ]
    step = axis("k", rows.length, "ordered")
    row = tuple(axis.var for axis in axes)
    at = rows.length - 1 - step.var if reverse else step.var
    body = _step(x, y, state.buffer, row, (row[0], at, *row[1:]))
    made = nest("y", [*axes, step], body)
    return Tensor(y, Stage(made, (y,), (state, x)))


def _step(x: Tensor, y: Buffer, state: Buffer, row: Index, at: Index) -> Stmt:
    """Add one element to the running sum and store it."""
    total = Var("sum", state.dtype)
    return seq(
        Let(total, Load(state, row) + x[at].cast(state.dtype)),
        Store(state, row, total),
        Store(y, at, total.cast(y.dtype)),
    )


def _starts(sums: Tensor, *, reverse: bool) -> Tensor:
    """The exclusive scan of the part sums: the initial state of each part."""
    number, *others = sums.buffer.shape
    state = Buffer("before", sums.dtype, tuple(others))
    start = Buffer("start", sums.dtype, sums.buffer.shape)
    clear = [axis(f"z{n}", extent) for n, extent in enumerate(others)]
    zero = as_expr(0, sums.dtype)
    first = nest("before", clear, Store(state, tuple(a.var for a in clear), zero))
    axes = [axis(f"b{n}", extent) for n, extent in enumerate(others)]
    step = axis("q", number, "ordered")
    row = tuple(axis.var for axis in axes)
    part = number - 1 - step.var if reverse else step.var
    body = seq(
        Store(start, (part, *row), Load(state, row)),
        Store(state, row, Load(state, row) + sums[(part, *row)]),
    )
    nests = seq(first, nest("start", [*axes, step], body))
    return Tensor(start, Stage(nests, (state, start), (sums,)))


@dataclass(frozen=True, slots=True)
class _Side:
    """The full parts, or the remainder: first part, number of parts, their length."""

    name: str
    first: Expr
    count: Expr
    length: Expr


def _in_parts(parts: Parts, y: Buffer, starts: Tensor, *, reverse: bool) -> Tensor:
    """Scan all parts in parallel, full ones and the remainder."""
    n, length = parts.rows.length, parts.length
    whole = n // length
    sides = (
        _Side("", as_expr(0), whole, as_expr(length)),
        _Side("_rest", whole, parts.number - whole, n - whole * length),
    )
    states = [
        Buffer(f"state{s.name}", starts.dtype, starts.buffer.shape) for s in sides
    ]
    nests = [
        nest
        for side, state in zip(sides, states, strict=True)
        for nest in _of_side(parts, y, state, starts, side, reverse=reverse)
    ]
    return Tensor(y, Stage(seq(nests), (*states, y), (starts, parts.rows.array)))


def _of_side(
    parts: Parts,
    y: Buffer,
    state: Buffer,
    starts: Tensor,
    side: _Side,
    *,
    reverse: bool,
) -> list[Stmt]:
    """Nests that initialise the state of each part and scan it."""

    def axes_of(letter: str) -> tuple[list[Axis], Index]:
        made = [axis(f"{letter}{side.name}", side.count)]
        for n, extent in enumerate(starts.buffer.shape[1:]):
            made.append(axis(f"{letter}{n}{side.name}", extent))
        first, *others = (axis.var for axis in made)
        return made, (side.first + first, *others)

    axes, part = axes_of("f")
    clear = nest(f"state{side.name}", axes, Store(state, part, starts[part]))
    axes, part = axes_of("p")
    step = axis(f"k{side.name}", side.length, "ordered")
    place = side.length - 1 - step.var if reverse else step.var
    (m,) = parts.row(part)
    at = (as_expr(m), part[0] * parts.length + place)
    body = _step(parts.rows.array, y, state, part, at)
    return [clear, nest(f"y{side.name}", [*axes, step], body)]
