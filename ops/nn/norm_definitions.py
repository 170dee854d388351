"""Layer and RMS normalisation of rows `[m, n]`, and their gradients, as loops.

The variance is that of the differences from the mean, taken in a second pass over the
row, which is in the cache: no cancellation, whatever the mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from tensorlang.ir import as_expr, compute, intrinsic
from tensorlang.ops.along import Index, Rows, two_sums
from tensorlang.ops.assembling import stored, wide

if TYPE_CHECKING:
    from tensorlang.ir.frontend import Tensor
    from tensorlang.ir.nodes import Expr


Value: TypeAlias = "Callable[[Index], Expr]"


def inverse_root(value: Expr) -> Expr:
    """1 over the square root."""
    return as_expr(1.0, value.dtype) / intrinsic("sqrt", value)


def _mean_of(rows: Rows, value: Value, name: str) -> Value:
    """The mean over a row, from any index in it."""
    total = rows.fold("sum", value, name)
    return lambda at: total[at[0]] / rows.length.cast(total.dtype)


def _unit(rows: Rows, eps: Expr) -> tuple[Value, Value]:
    """The normalised element, and 1 over the standard deviation of its row."""
    mean = _mean_of(rows, rows.__getitem__, "total")

    def square(at: Index) -> Expr:
        difference = rows[at] - mean(at)
        return difference * difference

    variance = _mean_of(rows, square, "squares")

    def scale(at: Index) -> Expr:
        return inverse_root(variance(at) + eps)

    return lambda at: (rows[at] - mean(at)) * scale(at), scale


def _root_mean_square(rows: Rows, eps: Expr) -> tuple[Value, Value]:
    """The normalised element, and 1 over the root of the mean square of its row."""
    square = _mean_of(rows, lambda at: rows[at] * rows[at], "squares")

    def scale(at: Index) -> Expr:
        return inverse_root(square(at) + eps)

    return lambda at: rows[at] * scale(at), scale


def _weighted(given: Rows, weight: Tensor | None) -> Value:
    """An element of dy, times the weight of its column."""
    if weight is None:
        return given.__getitem__
    return lambda at: given[at] * wide(weight[at[1]])


def layer_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, eps: Expr
) -> Tensor:
    """`(x - mean) / sqrt(var + eps) * weight + bias`."""
    rows = Rows(x)
    unit, _ = _unit(rows, eps)

    def element(at: Index) -> Expr:
        value = unit(at) if weight is None else unit(at) * wide(weight[at[1]])
        return stored(value if bias is None else value + wide(bias[at[1]]), x.dtype)

    made: Tensor = rows.each(element, "y")
    return made


def rms_norm(x: Tensor, weight: Tensor | None = None, *, eps: Expr) -> Tensor:
    """`x / sqrt(mean of squares + eps) * weight`."""
    rows = Rows(x)
    unit, _ = _root_mean_square(rows, eps)

    def element(at: Index) -> Expr:
        value = unit(at) if weight is None else unit(at) * wide(weight[at[1]])
        return stored(value, x.dtype)

    made: Tensor = rows.each(element, "y")
    return made


def layer_norm_grad(
    dy: Tensor, x: Tensor, weight: Tensor | None = None, *, eps: Expr
) -> Tensor | tuple[Tensor, ...]:
    """Of x, and of weight and bias where there is a weight.

    With `u` the normalised x and `g = dy weight`, dx is the part of g that changes
    neither mean nor variance: `scale (g - mean(g) - u mean(g u))`.
    """
    rows, given = Rows(x), Rows(dy)
    unit, scale = _unit(rows, eps)
    g = _weighted(given, weight)
    slope = _mean_of(rows, lambda at: g(at) * unit(at), "slope")
    level = _mean_of(rows, g, "level")

    def element(at: Index) -> Expr:
        rest = g(at) - level(at) - unit(at) * slope(at)
        return stored(scale(at) * rest, x.dtype)

    dx: Tensor = rows.each(element, "dx")
    if weight is None:
        return dx
    by_unit, plain = rows.down(
        two_sums(given.dtype),
        lambda at: (given[at] * unit(at), given[at]),
        ("dweight", "dbias"),
    )
    return dx, _stored_as(by_unit, weight), _stored_as(plain, weight)


def rms_norm_grad(
    dy: Tensor, x: Tensor, weight: Tensor | None = None, *, eps: Expr
) -> Tensor | tuple[Tensor, ...]:
    """Of x, and of weight where there is one: `scale (g - u mean(g u))`."""
    rows, given = Rows(x), Rows(dy)
    unit, scale = _root_mean_square(rows, eps)
    g = _weighted(given, weight)
    slope = _mean_of(rows, lambda at: g(at) * unit(at), "slope")

    def element(at: Index) -> Expr:
        return stored(scale(at) * (g(at) - unit(at) * slope(at)), x.dtype)

    dx: Tensor = rows.each(element, "dx")
    if weight is None:
        return dx
    by_unit = rows.down("sum", lambda at: given[at] * unit(at), "dweight")
    return dx, _stored_as(by_unit, weight)


def _stored_as(total: Tensor, like: Tensor) -> Tensor:
    """Sums over all rows in the type of another array."""
    if total.dtype == like.dtype:
        return total
    made: Tensor = compute(
        total.shape,
        lambda c: stored(total[c], like.dtype),
        f"{total.buffer.name}_{like.dtype}",
    )
    return made
