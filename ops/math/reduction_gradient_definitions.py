"""The gradients of folds as loops: what each element of a row gets of its row's dy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tensorlang.ir import as_expr, compute, intrinsic
from tensorlang.ir.nodes import Binary, Const, Select
from tensorlang.ops.along import Index, Rows, top_of
from tensorlang.ops.assembling import stored, wide
from tensorlang.ops.math.reducers import bits_of, extreme, or_nan

if TYPE_CHECKING:
    from tensorlang.ir.frontend import Tensor
    from tensorlang.ir.nodes import Expr

_ROW = (1,)


def sum_grad(dy: Tensor, x: Tensor) -> Tensor:
    """`dy` for each element."""
    return _spread(dy, x, lambda value: value)


def mean_grad(dy: Tensor, x: Tensor, *, share: Expr) -> Tensor:
    """`dy / n` for each element."""
    return _spread(dy, x, lambda value: value * share)


def _spread(dy: Tensor, x: Tensor, value: Callable[[Expr], Expr]) -> Tensor:
    def element(*i: Expr) -> Expr:
        pairs = zip(dy.shape, i, strict=True)
        at = tuple(0 if isinstance(extent, Const) else n for extent, n in pairs)
        return stored(value(wide(dy[at])), x.dtype)

    made: Tensor = compute(x.shape, element, "y")
    return made


def max_grad(dy: Tensor, x: Tensor, *, dims: tuple[int, ...] = _ROW) -> Tensor:
    """`dy`, shared by all that are the largest."""
    return _extreme_grad(dy, Rows(x, dims), "max")


def min_grad(dy: Tensor, x: Tensor, *, dims: tuple[int, ...] = _ROW) -> Tensor:
    """`dy`, shared by all that are the smallest."""
    return _extreme_grad(dy, Rows(x, dims), "min")


def _extreme_grad(dy: Tensor, rows: Rows, name: str) -> Tensor:
    kind = rows.dtype
    one, zero = as_expr(1.0, kind), as_expr(0.0, kind)
    best, bits = rows.fold(
        extreme(name, kind), lambda at: (rows[at], bits_of(rows[at])), ("best", "bits")
    )

    def hit(at: Index) -> Expr:
        found = or_nan(best[rows.of(at)], bits[rows.of(at)])
        both = found.not_equal(found) & rows[at].not_equal(rows[at])
        return rows[at].equal(found) | both

    count = rows.fold("sum", lambda at: Select(hit(at), one, zero), "count")

    def element(at: Index) -> Expr:
        share = wide(dy[rows.of(at)]) / count[rows.of(at)]
        return stored(Select(hit(at), share, zero), rows.array.dtype)

    made: Tensor = rows.each(element, "dx")
    return made


def var_grad(
    dy: Tensor, x: Tensor, *, correction: Expr, dims: tuple[int, ...] = _ROW
) -> Tensor:
    """`2 dy (x - mean) / (n - correction)`."""
    rows = Rows(x, dims)
    count = rows.length.cast(rows.dtype)
    free = Binary("max", count - correction, as_expr(0.0, count.dtype))
    total = rows.fold("sum", rows.__getitem__, "total")

    def element(at: Index) -> Expr:
        row = rows.of(at)
        difference = rows[at] - total[row] / count
        return stored(wide(dy[row]) * (difference * (2.0 / free)), x.dtype)

    made: Tensor = rows.each(element, "dx")
    return made


def logsumexp_grad(dy: Tensor, x: Tensor, *, dims: tuple[int, ...] = _ROW) -> Tensor:
    """`dy softmax(x)`; NaN where all are -inf, as in PyTorch."""
    rows = Rows(x, dims)
    top = rows.fold(top_of(rows.dtype), rows.__getitem__, "top")

    def share(at: Index) -> Expr:
        largest = top[rows.of(at)]
        infinite = intrinsic("isinf", largest)
        base = Select(infinite, as_expr(0.0, largest.dtype), largest)
        return intrinsic("exp", rows[at] - base)

    e = rows.each(share, "e")
    total = rows.fold("sum", e.__getitem__, "sum_of_e")

    def element(at: Index) -> Expr:
        value = e[at] / total[rows.of(at)]  # 0 / 0 where all are -inf
        return stored(wide(dy[rows.of(at)]) * value, x.dtype)

    made: Tensor = rows.each(element, "dx")
    return made
