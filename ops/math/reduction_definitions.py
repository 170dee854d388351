"""Folds of rows `[m, n]` or `[m, n, i]` as loops.

Integers are summed in 64 bits, f16 and bf16 in f32. Where `long` is said, parts of the
rows are folded first, and these then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tensorlang.ir import as_expr, boolean, i64, intrinsic, u64
from tensorlang.ir.nodes import Binary, Select
from tensorlang.ops.along import Index, Rows, row_of, top_of
from tensorlang.ops.assembling import stored
from tensorlang.ops.math.reducers import (
    bits_of,
    extreme,
    extreme_at,
    or_nan,
    packed,
    packs,
    position_of,
)
from tensorlang.ops.parts import REST, Parts

if TYPE_CHECKING:
    from tensorlang.ir.dtypes import DType
    from tensorlang.ir.frontend import Tensor
    from tensorlang.ir.nodes import Expr, Reducer


def folded(
    x: Tensor,
    reducer: str | Reducer,
    value: Callable[[Rows, Index], Expr],
    *,
    long: bool,
    name: str = "y",
) -> Tensor:
    """A value of each element folded over the rows, in parts where they are long."""
    rows = Rows(x)
    if not long:
        made: Tensor = rows.fold(reducer, lambda at: value(rows, at), name)
        return made
    parts = Parts(rows, name)
    part = parts.fold(reducer, lambda _, __, at: value(rows, at), f"{name}_of_part")
    total: Tensor = parts.total(reducer, part.__getitem__, name)
    return total


def _folded_together(
    x: Tensor,
    reducer: Reducer,
    values: Callable[[Rows, Index], tuple[Expr, ...]],
    names: tuple[str, ...],
    *,
    long: bool,
) -> tuple[Tensor, ...]:
    """The same of several values, which make up one state."""
    rows = Rows(x)
    if not long:
        made: tuple[Tensor, ...] = rows.fold(
            reducer, lambda at: values(rows, at), names
        )
        return made
    parts = Parts(rows)
    own = tuple(f"{name}_of_part" for name in names)
    found = parts.fold(reducer, lambda _, __, at: values(rows, at), own)
    total: tuple[Tensor, ...] = parts.total(
        reducer, lambda p: tuple(f[p] for f in found), names
    )
    return total


def _is_empty(x: Tensor) -> bool:
    """Whether there is nothing to fold."""
    return getattr(x.shape[1], "value", None) == 0


def _constant(x: Tensor, value: float | bool, dtype: DType) -> Tensor:
    """The same value for each row: what a fold of nothing is."""
    return Rows(x).row(lambda _: as_expr(value, dtype), "y")


def _counted(value: Expr) -> Expr:
    """A value in the type that it is summed in."""
    if value.dtype.kind in ("int", "bool"):
        return value.cast(i64)
    return value.cast(u64) if value.dtype.kind == "uint" else value


def _summed_as(x: Tensor) -> DType:
    """The type of a sum or product."""
    return x.dtype if x.dtype.is_float else _counted(x[_first(x)]).dtype


def _first(x: Tensor) -> tuple[int, ...]:
    return (0,) * x.buffer.ndim


def sum(x: Tensor, *, long: bool) -> Tensor:
    """0 of nothing."""
    kind = _summed_as(x)
    if _is_empty(x):
        return _constant(x, 0, kind)
    total = folded(x, "sum", lambda rows, at: _counted(rows[at]), long=long)
    return _as(x, total, kind)


def prod(x: Tensor, *, long: bool) -> Tensor:
    """1 of nothing."""
    kind = _summed_as(x)
    if _is_empty(x):
        return _constant(x, 1, kind)
    total = folded(x, "prod", lambda rows, at: _counted(rows[at]), long=long)
    return _as(x, total, kind)


def _as(x: Tensor, total: Tensor, kind: DType) -> Tensor:
    """What was folded, in a type."""
    if total.dtype == kind:
        return total
    return Rows(x).row(lambda row: total[row].cast(kind), "rounded")


def mean(x: Tensor, *, long: bool) -> Tensor:
    """NaN of nothing."""
    if _is_empty(x):
        return _constant(x, float("nan"), x.dtype)
    total = folded(x, "sum", lambda rows, at: rows[at], long=long)
    count = x.shape[1].cast(total.dtype)
    return Rows(x).row(lambda row: stored(total[row] / count, x.dtype), "mean")


def max(x: Tensor, *, long: bool) -> Tensor:
    """NaN where there is one."""
    return _extreme(x, "max", long=long)


def min(x: Tensor, *, long: bool) -> Tensor:
    """NaN where there is one."""
    return _extreme(x, "min", long=long)


def _extreme(x: Tensor, name: str, *, long: bool) -> Tensor:
    kind = Rows(x).dtype
    if _is_empty(x):  # which no call comes to
        return _constant(x, 0, x.dtype)
    reducer = extreme(name, kind)
    if not kind.is_float:
        return folded(x, reducer, lambda rows, at: rows[at], long=long)

    def value(rows: Rows, at: Index) -> tuple[Expr, ...]:
        return rows[at], bits_of(rows[at])

    best, bits = _folded_together(x, reducer, value, ("best", "bits"), long=long)
    return Rows(x).row(lambda row: stored(or_nan(best[row], bits[row]), x.dtype), "y")


def any(x: Tensor, *, long: bool) -> Tensor:
    """Whether one is not 0; false of nothing."""
    if _is_empty(x):
        return _constant(x, value=False, dtype=boolean)
    return folded(x, "any", _truth, long=long)


def all(x: Tensor, *, long: bool) -> Tensor:
    """Whether none is 0; true of nothing."""
    if _is_empty(x):
        return _constant(x, value=True, dtype=boolean)
    return folded(x, "all", _truth, long=long)


def _truth(rows: Rows, at: Index) -> Expr:
    value = rows[at]
    return value if value.dtype == boolean else value.not_equal(0)


def argmax(x: Tensor, *, long: bool) -> Tensor:
    """The first position of the largest, or of NaN."""
    return _position(x, "argmax", long=long)


def argmin(x: Tensor, *, long: bool) -> Tensor:
    """The first position of the smallest, or of NaN."""
    return _position(x, "argmin", long=long)


def _position(x: Tensor, name: str, *, long: bool) -> Tensor:
    kind = Rows(x).dtype
    if _is_empty(x):  # which no call comes to
        return _constant(x, 0, i64)
    if packs(kind):
        best = folded(
            x, "max", lambda rows, at: packed(name, rows[at], at[1]), long=long
        )
        return Rows(x).row(lambda row: position_of(best[row]), "at")
    _, at = _folded_together(
        x,
        extreme_at(name, kind),
        lambda rows, at: (rows[at], at[1]),
        ("best", "at"),
        long=long,
    )
    return at


def var(x: Tensor, *, long: bool, correction: Expr) -> Tensor:
    """The squared differences from the mean over `n - correction`; NaN of nothing.

    Parts are put together as Chan, Golub and LeVeque do, "Updating formulae and a
    pairwise algorithm for computing sample variances", 1979.
    """
    if _is_empty(x):
        return _constant(x, float("nan"), x.dtype)
    rows = Rows(x)
    squares = _squares_of_parts(rows) if long and x.buffer.ndim == 2 else None
    if squares is None:
        squares = _squares(rows, long=long)
    count = x.shape[1].cast(squares.dtype)
    free = Binary("max", count - correction, as_expr(0.0, count.dtype))
    return rows.row(lambda row: stored(squares[row] / free, x.dtype), "var")


def _squares(rows: Rows, *, long: bool) -> Tensor:
    """The sum of squared differences from the mean of each row, in two passes."""
    x = rows.array
    total = folded(x, "sum", lambda _, at: rows[at], long=long, name="total")
    count = rows.length.cast(total.dtype)

    def square(at: Index) -> Expr:
        difference = rows[at] - total[row_of(at)] / count
        return difference * difference

    return folded(x, "sum", lambda _, at: square(at), long=long, name="squares")


def _squares_of_parts(rows: Rows) -> Tensor:
    """The same of rows `[m, n]`, in one trip through memory."""
    parts = Parts(rows)
    sums = parts.fold("sum", lambda _, __, at: rows[at], "sums")
    kind = sums.every.dtype

    def own_mean(side: int, part: Index) -> Expr:
        mean: Expr = sums.of(side)[part] / parts.count(part).cast(kind)
        return mean

    def square(side: int, part: Index, at: Index) -> Expr:
        difference = rows[at] - own_mean(side, part)
        return difference * difference

    inside = parts.fold("sum", square, "inside")
    total: Tensor = parts.total("sum", sums.__getitem__, "total")

    def whole(part: Index) -> Expr:
        off = own_mean(REST, part) - total[parts.row(part)] / rows.length.cast(kind)
        value: Expr = inside[part] + off * off * parts.count(part).cast(kind)
        return value

    made: Tensor = parts.total("sum", whole, "squares")
    return made


def logsumexp(x: Tensor, *, long: bool) -> Tensor:
    """-inf of nothing, and where all are -inf; the largest is taken off before exp."""
    if _is_empty(x):
        return _constant(x, float("-inf"), x.dtype)
    rows = Rows(x)
    if not long:
        top = rows.fold(top_of(rows.dtype), rows.__getitem__, "top")
        total = rows.fold("sum", lambda at: _exp(rows[at], top[row_of(at)]), "total")
    elif x.buffer.ndim == 2:
        top, total = _exponentials_of_parts(rows)
    else:
        largest = top_of(rows.dtype)
        top = folded(x, largest, lambda _, at: rows[at], long=True, name="top")

        def share(_: Rows, at: Index) -> Expr:
            return _exp(rows[at], top[row_of(at)])

        total = folded(x, "sum", share, long=True, name="total")

    def value(row: Index) -> Expr:
        return intrinsic("log", total[row]) + _base(top[row])

    return rows.row(lambda row: stored(value(row), x.dtype), "logsumexp")


def _base(top: Expr) -> Expr:
    """What is taken off: the largest, or 0 where that is infinite."""
    return Select(intrinsic("isinf", top), as_expr(0.0, top.dtype), top)


def _exp(value: Expr, top: Expr) -> Expr:
    return intrinsic("exp", value - _base(top))


def _exponentials_of_parts(rows: Rows) -> tuple[Tensor, Tensor]:
    """The largest of each row, and the sum of exponentials, in one trip."""
    parts = Parts(rows)
    tops = parts.fold(top_of(rows.dtype), lambda _, __, at: rows[at], "tops")

    def moved_exp(side: int, part: Index, at: Index) -> Expr:
        return _exp(rows[at], tops.of(side)[part])

    sums = parts.fold("sum", moved_exp, "sums")
    top = parts.total(top_of(rows.dtype), tops.__getitem__, "top")

    def moved(part: Index) -> Expr:
        share = _exp(_base(tops[part]), top[parts.row(part)])
        none = sums[part].equal(0.0)  # else 0 times infinity
        return Select(none, as_expr(0.0, share.dtype), sums[part] * share)

    return top, parts.total("sum", moved, "total")
