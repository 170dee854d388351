"""Group normalisation.

Wu and He, "Group normalization", 2018. The variance is computed from deviations, as in
`nn.layer_norm`; the gradient is derived.
"""

from __future__ import annotations

from tensorlang import ir
from tensorlang.errors import ArgumentError
from tensorlang.ops.nn.norms import inverse_root
from tensorlang.ops.spec.declarations import Array, moderate
from tensorlang.ops.spec.definition import operator
from tensorlang.ops.spec.signature import Floats, Scalar, Weights


def _samples(dy: Array, x: Array, *weights: Array, **options: object) -> object:
    """Inputs of the gradient whose differences are more than rounding errors.

    The results of a group are differences of numbers as large as `dy * weight`.
    """
    del options
    moderate(dy, *weights)
    return dy, x, *weights


@operator(
    "nn.group_norm",
    shapes=((8, 64, 28, 28), (64,), (64,)),
    usual={"groups": 8},
    gradient={"linear": False, "samples": _samples},
)
def group_norm(
    x: Floats,
    groups: int,
    weight: Weights | None = None,
    bias: Weights | None = None,
    eps: Scalar = 1e-5,
) -> ir.Tensor:
    """Normalise groups of channels.

    `(x - mean) / sqrt(variance + eps) * weight + bias`.

    Args:
        x: Floats `[batch, channels, ...]`.
        groups: The number of groups; a divisor of the number of channels.
        weight: Scale of each channel, or None.
        bias: Offset of each channel, or None.
        eps: Added to the variance.
        out: Output array.
    """
    ir.require(x.ndim > 1, f"x is [batch, channels, ...], not {x.shape}")
    batch, channels, *image = x.shape
    ir.require(
        groups > 0 and channels % max(groups, 1) == 0,
        f"{groups} groups do not divide {channels} channels",
        ArgumentError,
    )
    for name, each in (("weight", weight), ("bias", bias)):
        ir.require(
            each is None or each.shape == (channels,),
            f"{name} has shape {each and each.shape}; it has one number for each of "
            f"{channels} channels",
        )
    pixels, own = 1, channels // groups
    for extent in image:
        pixels = pixels * extent
    view = ir.reshaped(x, (batch, groups, own, pixels))
    scale, offset = (w and ir.reshaped(w, (groups, own)) for w in (weight, bias))
    c, k = ir.reduce_axis(own, "c"), ir.reduce_axis(pixels, "k")
    count = ir.as_expr(own * pixels)

    def deviation(b: ir.Expr, g: ir.Expr, channel: ir.Expr, pixel: ir.Expr) -> ir.Expr:
        mean: ir.Expr = total[b, g] / count.cast(total.dtype)
        return ir.wide(view[b, g, channel, pixel]) - mean

    def square(b: ir.Expr, g: ir.Expr) -> ir.Reduction:
        off = deviation(b, g, c.expression(), k.expression())
        return ir.sum(off * off, (c, k))

    def element(b: ir.Expr, g: ir.Expr, channel: ir.Expr, pixel: ir.Expr) -> ir.Expr:
        variance = squares[b, g] / count.cast(squares.dtype)
        value = deviation(b, g, channel, pixel) * inverse_root(variance + eps)
        value = value if scale is None else value * ir.wide(scale[g, channel])
        value = value if offset is None else value + ir.wide(offset[g, channel])
        return ir.stored(value, x.dtype)

    whole = (batch, groups)
    total = ir.compute(
        whole, lambda b, g: ir.sum(ir.wide(view[b, g, c, k]), (c, k)), "total"
    )
    squares = ir.compute(whole, square, "squares")
    return ir.reshaped(ir.compute((*whole, own, pixels), element, "y"), x.shape)
