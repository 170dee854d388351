"""Layer and RMS normalisation over the last dimensions.

Ba, Kiros and Hinton, "Layer normalization", 2016; Zhang and Sennrich, "Root mean square
layer normalization", 2019.

The variance is computed from deviations in a second pass over the row, which is then in
cache: no cancellation, whatever the mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from tensorlang import ir
from tensorlang.ops.spec.definition import operator
from tensorlang.ops.spec.signature import Floats, Scalar, Weights

Value: TypeAlias = "Callable[[ir.rows.Index], ir.Expr]"
_USUAL: Final = (512, 4096)
_RESULTS: Final = {"dx": "x", "dweight": "weight", "dbias": "weight"}


@operator(
    "nn.layer_norm",
    shapes=(_USUAL, _USUAL[1:], _USUAL[1:]),
    scheduled_as="rows",
    whole=True,
)
def layer_norm(
    x: Floats,
    weight: Weights | None = None,
    bias: Weights | None = None,
    eps: Scalar = 1e-5,
) -> ir.Tensor:
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
    rows, weight, bias = _seen(x, weight=weight, bias=bias)
    mean = _mean_of(rows, rows.__getitem__, "total")

    def square(at: ir.rows.Index) -> ir.Expr:
        difference: ir.Expr = rows[at] - mean(at)
        return difference * difference

    variance = _mean_of(rows, square, "squares")

    def unit(at: ir.rows.Index) -> ir.Expr:
        made: ir.Expr = (rows[at] - mean(at)) * inverse_root(variance(at) + eps)
        return made

    return _weighed(rows, unit, weight, bias)


@operator(
    "nn.rms_norm",
    shapes=(_USUAL, _USUAL[1:]),
    scheduled_as="rows",
    whole=True,
    gradient={"linear": False},
)
def rms_norm(x: Floats, weight: Weights | None = None, eps: Scalar = 1e-6) -> ir.Tensor:
    """Root mean square normalisation over the last dimensions.

    `x / sqrt(mean(x * x) + eps) * weight`.

    Args:
        x: Floats, at least one dimension.
        weight: Scale, of the shape of the last dimensions of `x`, those normalised
            over, or None for the last dimension only.
        eps: Added to the mean square.
        out: Output array; may be `x`.
    """
    rows, weight = _seen(x, weight=weight)
    square = _mean_of(rows, lambda at: rows[at] * rows[at], "squares")

    def unit(at: ir.rows.Index) -> ir.Expr:
        made: ir.Expr = rows[at] * inverse_root(square(at) + eps)
        return made

    return _weighed(rows, unit, weight, None)


@operator(
    "nn.layer_norm_grad",
    shapes=(_USUAL, _USUAL, _USUAL[1:]),
    scheduled_as="rows",
    whole=True,
    gradient={"linear": False, "results": _RESULTS},
)
def layer_norm_grad(
    dy: Floats, x: Floats, weight: Weights | None = None, eps: Scalar = 1e-5
) -> object:
    """The gradients of `nn.layer_norm` for x, weight and bias, derived.

    The bias itself is not needed.

    Args:
        weight: As for `nn.layer_norm`; if None, only the gradient for x is returned.
        out: Output arrays: three, or one without weight.
    """
    ir.rows.same_shape(dy=dy, x=x)
    if weight is None:
        return ir.adjoint([layer_norm.body(x, eps=eps)], [dy], [x], ["dx"])[0]
    bias = ir.placeholder(weight.shape, weight.dtype, "bias")
    made = layer_norm.body(x, weight, bias, eps)
    return ir.adjoint([made], [dy], [x, weight, bias], [*_RESULTS])


# --------------------------------------------------------------------------- shapes


def _seen(x: ir.Tensor, **weights: ir.Tensor | None) -> tuple[Any, ...]:
    """An array as rows over the normalised dimensions, and flattened weights."""
    own = [weight for weight in weights.values() if weight is not None]
    normal = own[0].shape if own else x.shape[-1:]
    for name, weight in weights.items():
        last = x.shape[x.ndim - len(normal) :]
        ir.require(
            weight is None or (_alike(weight.shape, normal) and _alike(last, normal)),
            f"{name} has shape {weight and weight.shape}; it must be that of the last "
            f"dimensions of x, {x.shape}",
        )
    ir.require(normal, f"x of shape {x.shape} has no dimension to normalise over")
    axes = tuple(range(x.ndim - len(normal), x.ndim))
    rows = ir.rows.along(x, axes, fixed=True)
    length = rows.array.shape[1:]
    return rows, *(w and ir.reshaped(w, length) for w in weights.values())


def _alike(a: Any, b: Any) -> bool:
    return len(a) == len(b) and tuple(a) == tuple(b)


# ------------------------------------------------------------------------ the loops


def inverse_root(value: ir.Expr) -> ir.Expr:
    """Reciprocal square root."""
    return 1.0 / ir.sqrt(value)


def _mean_of(rows: ir.rows.Rows, value: Value, name: str) -> Value:
    """The mean over a row, looked up by any index in it."""
    total = rows.fold("sum", value, name)
    return lambda at: total[at[0]] / rows.length.cast(total.dtype)


def _weighed(
    rows: ir.rows.Rows, unit: Value, weight: ir.Tensor | None, bias: ir.Tensor | None
) -> ir.Tensor:
    """The normalised elements times their column's weight, plus its bias."""

    def element(at: ir.rows.Index) -> ir.Expr:
        value = unit(at) if weight is None else unit(at) * ir.wide(weight[at[1]])
        value = value if bias is None else value + ir.wide(bias[at[1]])
        return ir.stored(value, rows.array.dtype)

    return rows.whole(rows.each(element, "y"))
