"""Layer and RMS normalisation over the last dimensions, and their gradients.

Ba, Kiros and Hinton, "Layer normalization", 2016; Zhang and Sennrich, "Root mean square
layer normalization", 2019.

The variance is computed from deviations in a second pass over the row, which is then in
cache: no cancellation, whatever the mean. Gradients are written by hand: identities of
normalised rows leave two sums per row, in one pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tensorlang import ir
from tensorlang.ops.definition import Body, Definition, operator
from tensorlang.ops.signature import Floats, Scalar, Weights

if TYPE_CHECKING:
    from tensorlang.ir import Expr, Tensor
    from tensorlang.ir.rows import Index, Rows

Value: TypeAlias = "Callable[[Index], Expr]"
_USUAL: Final = (512, 4096)
_RESULTS: Final = {  # of gradients: the array that each goes with
    "layer_norm_grad": {"dx": "x", "dweight": "weight", "dbias": "weight"},
    "rms_norm_grad": {"dx": "x", "dweight": "weight"},
}


def _operator(name: str, weights: int, of: str = "") -> Callable[[Body], Definition]:
    """An operator with this many weights, or the gradient of `of`."""
    return operator(
        f"nn.{name}",
        shapes=(_USUAL,) * (2 if of else 1) + (_USUAL[1:],) * weights,
        scheduled_as="rows",
        whole=True,
        gradient={"linear": False, "results": _RESULTS[name]} if of else None,
    )


@_operator("layer_norm", 2)
def layer_norm(
    x: Floats,
    weight: Weights | None = None,
    bias: Weights | None = None,
    eps: Scalar = 1e-5,
) -> Tensor:
    """Layer normalisation over the last dimensions.

    `(x - mean) / sqrt(variance + eps) * weight + bias`.

    Args:
        x: Floats, at least one dimension.
        weight: Scale, of the shape of the last dimensions of `x`, those normalised
            over, or None; without weight and bias, only the last dimension is.
        bias: Offset, of the same shape, or None.
        eps: Added to the variance.
        out: Output array; may be `x`.
    """
    (rows,), weight, bias = _seen({"x": x}, weight=weight, bias=bias)
    unit, _ = _unit(rows, eps)
    return _weighed(rows, unit, weight, bias)


@_operator("rms_norm", 1)
def rms_norm(x: Floats, weight: Weights | None = None, eps: Scalar = 1e-6) -> Tensor:
    """Root mean square normalisation over the last dimensions.

    `x / sqrt(mean(x * x) + eps) * weight`.

    Args:
        x: Floats, at least one dimension.
        weight: Scale, of the shape of the last dimensions of `x`, those normalised
            over, or None for the last dimension only.
        eps: Added to the mean square.
        out: Output array; may be `x`.
    """
    (rows,), weight = _seen({"x": x}, weight=weight)
    unit, _ = _root_mean_square(rows, eps)
    return _weighed(rows, unit, weight, None)


@_operator("layer_norm_grad", 1, "layer_norm")
def layer_norm_grad(
    dy: Floats, x: Floats, weight: Weights | None = None, eps: Scalar = 1e-5
) -> Any:
    """The gradients of `nn.layer_norm` for x, weight and bias.

    With `u` the normalised x, `g = dy * weight` and `scale = 1 / sqrt(variance + eps)`,
    `dx = scale * (g - mean(g) - u * mean(g * u))`.

    Args:
        weight: As for `nn.layer_norm`; if None, only the gradient for x is returned.
        out: Output arrays: three, or one without weight.
    """
    (given, rows), flat = _seen({"dy": dy, "x": x}, weight=weight)
    unit, scale = _unit(rows, eps)
    g = _weighted(given, flat)
    slope = _mean_of(rows, lambda at: g(at) * unit(at), "slope")
    level = _mean_of(rows, g, "level")

    def element(at: Index) -> Expr:
        rest = g(at) - level(at) - unit(at) * slope(at)
        return ir.stored(scale(at) * rest, x.dtype)

    dx = rows.whole(rows.each(element, "dx"))
    if weight is None:
        return dx
    by_unit, plain = rows.down(
        ir.rows.two_sums(given.dtype),
        lambda at: (given[at] * unit(at), given[at]),
        ("dweight", "dbias"),
    )
    return dx, _as_weight(by_unit, weight), _as_weight(plain, weight)


@_operator("rms_norm_grad", 1, "rms_norm")
def rms_norm_grad(
    dy: Floats, x: Floats, weight: Weights | None = None, eps: Scalar = 1e-6
) -> object:
    """The gradients of `nn.rms_norm` for x and weight.

    With `u` the normalised x, `g = dy * weight` and `scale = 1 / sqrt(mean(x * x) +
    eps)`, `dx = scale * (g - u * mean(g * u))`.

    Args:
        weight: As for `nn.rms_norm`; if None, only the gradient for x is returned.
        out: Output arrays: two, or one without weight.
    """
    (given, rows), flat = _seen({"dy": dy, "x": x}, weight=weight)
    unit, scale = _root_mean_square(rows, eps)
    g = _weighted(given, flat)
    slope = _mean_of(rows, lambda at: g(at) * unit(at), "slope")

    def element(at: Index) -> Expr:
        return ir.stored(scale(at) * (g(at) - unit(at) * slope(at)), x.dtype)

    dx = rows.whole(rows.each(element, "dx"))
    if weight is None:
        return dx
    by_unit = rows.down("sum", lambda at: given[at] * unit(at), "dweight")
    return dx, _as_weight(by_unit, weight)


# --------------------------------------------------------------------------- shapes


def _seen(arrays: dict[str, Tensor], **weights: Tensor | None) -> tuple[Any, ...]:
    """Arrays as rows over the normalised dimensions, and flattened weights."""
    x = arrays["x"]
    own = [weight for weight in weights.values() if weight is not None]
    normal = own[0].shape if own else x.shape[-1:]
    for name, weight in weights.items():
        last = x.shape[x.ndim - len(normal) :]
        ir.require(
            weight is None or (_alike(weight.shape, normal) and _alike(last, normal)),
            "{name} has shape {shape}; it must be that of the last dimensions of x, "
            "{x}",
            name=name,
            shape=weight and weight.shape,
            x=x.shape,
        )
    ir.require(normal, "x of shape {x} has no dimension to normalise over", x=x.shape)
    axes = tuple(range(x.ndim - len(normal), x.ndim))
    rows = ir.rows.together(axes, **arrays)
    count, *length = rows[0].array.shape
    if len(rows) > 1 and count == 1:  # a gradient that sums over no rows
        int(count)
    return rows, *(w and ir.reshaped(w, length) for w in weights.values())


def _alike(a: Any, b: Any) -> bool:
    return len(a) == len(b) and tuple(a) == tuple(b)


# ------------------------------------------------------------------------ the loops


def inverse_root(value: Expr) -> Expr:
    """Reciprocal square root."""
    return 1.0 / ir.sqrt(value)


def _mean_of(rows: Rows, value: Value, name: str) -> Value:
    """The mean over a row, looked up by any index in it."""
    total = rows.fold("sum", value, name)
    return lambda at: total[at[0]] / rows.length.cast(total.dtype)


def _unit(rows: Rows, eps: Scalar) -> tuple[Value, Value]:
    """The normalised element, and its row's reciprocal standard deviation."""
    mean = _mean_of(rows, rows.__getitem__, "total")

    def square(at: Index) -> Expr:
        difference = rows[at] - mean(at)
        return difference * difference

    variance = _mean_of(rows, square, "squares")

    def scale(at: Index) -> Expr:
        return inverse_root(variance(at) + eps)

    return lambda at: (rows[at] - mean(at)) * scale(at), scale


def _root_mean_square(rows: Rows, eps: Scalar) -> tuple[Value, Value]:
    """The normalised element, and its row's reciprocal root mean square."""
    square = _mean_of(rows, lambda at: rows[at] * rows[at], "squares")

    def scale(at: Index) -> Expr:
        return inverse_root(square(at) + eps)

    return lambda at: rows[at] * scale(at), scale


def _weighed(
    rows: Rows, unit: Value, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    """The normalised elements times their column's weight, plus its bias."""

    def element(at: Index) -> Expr:
        value = unit(at) if weight is None else unit(at) * ir.wide(weight[at[1]])
        value = value if bias is None else value + ir.wide(bias[at[1]])
        return ir.stored(value, rows.array.dtype)

    return rows.whole(rows.each(element, "y"))


def _weighted(given: Rows, weight: Tensor | None) -> Value:
    """An element of dy times its column's weight."""
    if weight is None:
        return given.__getitem__
    return lambda at: given[at] * ir.wide(weight[at[1]])


def _as_weight(total: Tensor, weight: Tensor) -> Tensor:
    """Sums over all rows, in the shape and dtype of a weight."""
    made = total
    if total.dtype != weight.dtype:
        made = ir.compute(
            total.shape,
            lambda c: ir.stored(total[c], weight.dtype),
            f"{total.buffer.name}_{weight.dtype}",
        )
    return ir.reshaped(made, weight.shape)
