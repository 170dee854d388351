"""Dense layers of float activations and 4-bit weights."""

from __future__ import annotations

import math
from typing import Annotated, TypeAlias

from tensorlang import ir, lazy
from tensorlang.ops.nn.dense_shapes import (
    Activation,
    Shapes,
    check_quantized,
    from_sizes,
    sizes_of,
)
from tensorlang.ops.nn.epilogues import activated
from tensorlang.ops.nn.packing import LANES
from tensorlang.ops.nn.quantizing import Narrowed, half, weights
from tensorlang.ops.spec.definition import operator
from tensorlang.ops.spec.signature import Arrays, Singles

with lazy.modules(__name__):
    from tensorlang.ops.spec import demands

Pairs4: TypeAlias = Annotated["ir.Tensor", Arrays("pairs of 4-bit weights", ("u8",))]


def _with_scales(given: Shapes) -> Shapes:
    """The shapes for a shorthand MxNxK, with a scale for each output."""
    if (made := from_sizes(given)) is given:
        return given
    x, (columns, depth) = made
    return x, (columns, depth // 2), (columns,)


@operator(
    "nn.dense_int4",
    shapes=((1024, 1024), (1024, 512), (1024,)),
    whole=True,
    shorthand=_with_scales,
    scheduled_as="dense_int4",
    gradient={"linear": False},
)
def dense_int4(
    x: Narrowed,
    w: Pairs4,
    scales: Singles,
    b: Singles | None = None,
    *,
    activation: Activation | None = None,
) -> ir.Tensor:
    """Dense layer of float activations and 4-bit weights, with sums in f32.

    `activation(x @ dequantize(w, scales).T + b)`.

    Args:
        x: Activations, floats `[..., in]`.
        w: Weights, uint8 `[out, in / 2]`, two to a byte: those of even index in the
            lower four bits, and a value of 8 stands for 0, as `nn.quantize` makes them.
        scales: Scales of the weights: `[1]`, `[out]`, or `[out, groups]` for groups of
            `in / groups` adjacent weights.
        b: Bias `[out]`, or None.
        activation: None, `relu`, `gelu`, `gelu_tanh`, `silu`, `sigmoid` or `tanh`.
        out: Output array, `[..., out]`, of the type of `x`.

    Raises:
        ShapeError: a shape does not fit.
    """
    rows, (columns, width) = math.prod(x.shape[:-1]), sizes_of(w, LANES)
    depth = 2 * width
    check_quantized(x, columns, depth, scales, b)
    given = ir.reshaped(x, (rows, depth))
    groups = int(scales.shape[1]) if scales.ndim == 2 else 1
    whole = depth // groups % 2 == 0
    few = rows <= demands.FEW and whole
    products = (_by_bytes if few else _by_numbers)(given, w, scales)

    def element(i: ir.Expr, j: ir.Expr) -> ir.Expr:
        value: ir.Expr = products[i, j]
        if few and scales.ndim == 1:
            value = value * scales[j if scales.shape[0] != 1 else 0]
        value = activated(value if b is None else value + b[j], activation)
        return value.cast(x.dtype)

    y = ir.compute((rows, columns), element, "y")
    return ir.reshaped(y, (*x.shape[:-1], columns))


def _by_numbers(x: ir.Tensor, w: ir.Tensor, scales: ir.Tensor) -> ir.Tensor:
    """Sums of products with dequantised weights, which many rows share."""
    weight, depth = weights(w, scales, 4), x.shape[1]
    numbers = ir.compute((w.shape[0], depth), weight, "numbers")
    k = ir.reduce_axis(depth, "k")
    return ir.compute(
        (x.shape[0], w.shape[0]),
        lambda i, j: ir.sum(ir.wide(x[i, k]) * numbers[j, k], k),
        "products",
    )


def _by_bytes(x: ir.Tensor, w: ir.Tensor, scales: ir.Tensor) -> ir.Tensor:
    """Sums of products with both halves of each byte, scaled if there are groups.

    Activations of even and of odd index are apart, as the halves of a vector of bytes.
    """
    (columns, width), grouped = w.shape, scales.ndim == 2
    halves = ir.compute(
        (x.shape[0], 2, width), lambda i, h, k: ir.wide(x[i, k * 2 + h]), "halves"
    )
    count = int(scales.shape[1]) if grouped else 1
    g = ir.reduce_axis(count, "g")
    byte, h = ir.reduce_axis(int(width) // count, "k"), ir.reduce_axis(2, "h")

    def term(i: ir.Expr, j: ir.Expr) -> ir.Expr:
        at = g * (int(width) // count) + byte if grouped else byte
        number: ir.Expr = half(w[j, at], ir.as_expr(h))
        number = number * scales[j, g] if grouped else number
        return halves[i, h, at] * number

    return ir.compute(
        (x.shape[0], columns),
        lambda i, j: ir.sum(term(i, j), (g, byte, h) if grouped else (byte, h)),
        "products",
    )
