"""Dense layers of 8-bit activations and weights.

Jacob et al., "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference", 2018. Integer weights have no gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeAlias

from tensorlang import ir
from tensorlang.errors import ArgumentError, DTypeError
from tensorlang.ops.nn.dense_shapes import (
    Activation,
    Shapes,
    check_quantized,
    from_sizes,
    sizes_of,
)
from tensorlang.ops.nn.epilogues import activated
from tensorlang.ops.nn.packing import GROUP, LANES
from tensorlang.ops.spec.definition import operator
from tensorlang.ops.spec.signature import Arrays, ElementType, Packed, Scalar, Singles

Activations: TypeAlias = Annotated[
    "ir.Tensor", Arrays("8-bit activations", ("u8", "i8"))
]
Weights8: TypeAlias = Annotated["ir.Tensor", Arrays("8-bit weights", ("i8",))]
_LONGEST: Final = (2**31 - 1) // (255 * 128)  # products whose sum fits into i32
_LEAST, _MOST = 2.0**-126, (2 - 2.0**-23) * 2.0**127  # normal numbers of f32
_HALF: Final = 128  # what an i8 lacks to be a u8
_RESULTS: Final = ("f32", "bf16", "f16", "i8", "u8", "i32")


def _with_scales(given: Shapes) -> Shapes:
    """The shapes for a shorthand MxNxK, with a scale for each output."""
    made = from_sizes(given)
    return given if made is given else (*made, made[1][:1])


@operator(
    "nn.dense_int8",
    shapes=((1024, 1024), (1024, 1024), (1024,)),
    whole=True,
    shorthand=_with_scales,
)
def dense_int8(
    x: Activations,
    w: Weights8 | Packed,
    scales: Singles,
    b: Singles | None = None,
    *,
    x_scales: Singles | None = None,
    zero_points: Activations | None = None,
    activation: Activation | None = None,
    dtype: ElementType = "f32",
    y_scale: Scalar = 1.0,
    y_zero_point: Scalar = 0,
) -> ir.Tensor:
    """Dense layer of 8-bit activations and weights: exact sums in int32, then scaled.

    `activation((x - zero_points) @ w.T * x_scales * scales + b)`; for an integer
    `dtype`, divided by `y_scale`, rounded to nearest even, added to `y_zero_point` and
    clipped to the range of the type.

    Args:
        x: Activations, uint8 or int8 `[..., in]`.
        w: Weights, int8 `[out, in]`, or a `PackedWeight`.
        scales: Scales of the weights: `[1]`, `[out]`, or `[out, groups]` for groups of
            `in / groups` adjacent weights.
        b: Bias `[out]`, or None.
        x_scales: Scales of the activations: `[1]`, or one per row, of the shape of `x`
            without its last dimension; None for 1.
        zero_points: The values of `x` that stand for 0, of its type and of such a
            shape; None for 0.
        activation: None, `relu`, `gelu`, `gelu_tanh`, `silu`, `sigmoid` or `tanh`.
        dtype: Type of the result: `f32`, `bf16`, `f16`, `i8` or `u8`; or `i32`, which
            is the sums alone: exact, neither scaled nor activated.
        y_scale: Scale of an integer result, greater than 0.
        y_zero_point: Value of an integer result that stands for 0, one of its type.
        out: Output array, `[..., out]`.

    Raises:
        ShapeError: a shape does not fit, or sums of so many products may overflow.
        DTypeError: the type of an argument or of the result is none of these.
        ArgumentError: the scale or the zero point of an integer result is none.
    """
    _check_result(dtype, ir.as_expr(y_scale), ir.as_expr(y_zero_point))
    columns, depth = sizes_of(w, LANES, GROUP)
    check_quantized(x, columns, depth, scales, b)
    rows = math.prod(x.shape[:-1])
    groups = tuple(int(n) for n in scales.shape[1:])
    length = depth // math.prod(groups or (1,)) if depth else 0
    ir.require(
        length <= _LONGEST,
        f"sums of {length} products may overflow int32; at most {_LONGEST}",
    )
    zero = _by_row(zero_points, x, "zero_points")
    weight: ir.Tensor | Packed = w
    if isinstance(w, ir.Tensor):
        weight = ir.reshaped(w, (columns, *groups, length))
    else:
        ir.require(not groups, "a packed weight has no scales of groups")
    sums = _exact(ir.reshaped(x, (rows, *groups, length)), weight, columns, zero)
    row_scale = _by_row(x_scales, x, "x_scales")
    ir.require(
        dtype != ir.i32 or (x_scales, b, activation, groups) == (None, None, None, ()),
        "sums in i32 are not scaled by group or row, nor have they bias or activation",
        ArgumentError,
    )
    scaled = _scaled(sums, scales, (rows, columns))

    def element(i: ir.Expr, j: ir.Expr) -> ir.Expr:
        if dtype == ir.i32:
            return sums(i, j)
        value = scaled(i, j)
        value = row_scale(i, value, lambda scale: value * scale)
        value = activated(value if b is None else value + b[j], activation)
        if dtype.is_float:
            return value.cast(dtype)
        return _quantized(value, ir.as_expr(y_scale), ir.as_expr(y_zero_point), dtype)

    y = ir.compute((rows, columns), element, "y")
    return ir.reshaped(y, (*x.shape[:-1], columns))


def _scaled(
    sums: Callable[..., ir.Expr], scales: ir.Tensor, shape: tuple[ir.Size, int]
) -> Callable[[ir.Expr, ir.Expr], ir.Expr]:
    """An accessor of the sums in f32, times the scales of the weights."""
    if scales.ndim == 1:
        one = scales.shape[0] == 1
        return lambda i, j: sums(i, j).cast(ir.f32) * scales[0 if one else j]
    g = ir.reduce_axis(int(scales.shape[1]), "g")
    made = ir.compute(
        shape,
        lambda i, j: ir.sum(sums(i, j, g).cast(ir.f32) * scales[j, g], g),
        "scaled",
    )
    return lambda i, j: made[i, j]


def _exact(
    x: ir.Tensor,
    w: ir.Tensor | Packed,
    columns: int,
    zero_points: Callable[..., ir.Expr],
) -> Callable[..., ir.Expr]:
    """An accessor of the sums of `(x - zero_point) * w` over the last dimension.

    Processors multiply unsigned by signed bytes. Where both are signed, the product is
    that of the weights plus 128, less 128 times the sum of the activations: there are
    fewer of these than of weights where memory is the limit.

    Args:
        x: The activations, `[rows, *groups, n]`.
        w: The weights, `[columns, *groups, n]`; or packed, without groups, the columns
            and inputs padded with zeros.
        columns: The number of columns.
        zero_points: Applies the zero point of a row; see `_by_row`.
    """
    (rows, *groups, depth), signed = x.shape, x.dtype == ir.i8

    def weight(*at: Any) -> ir.Expr:
        if isinstance(w, ir.Tensor):
            return w[at]
        j, k = at
        return w.array[j // LANES, k // GROUP, j % LANES * GROUP + k % GROUP]

    def unsigned(*i: Any) -> ir.Expr:
        value = weight(*i)
        return value.cast(ir.u8) ^ ir.as_expr(_HALF, ir.u8) if signed else value

    wide, length, given, offset = columns, depth, x, None
    if not isinstance(w, ir.Tensor):
        strips, steps, _ = map(int, w.array.shape)
        wide, length = strips * LANES, steps * GROUP
        given = x if length == depth else _padded(x, length)
    elif signed:
        offset = ir.compute(w.shape, unsigned, "offset")
    k, of_w = (ir.reduce_axis(length, name) for name in ("k", "kw"))
    of_x = ir.reduce_axis(depth, "kx")

    def product(*at: Any) -> ir.Reduction:
        *g, i, j = at
        factor = unsigned(j, *g, k) if offset is None else offset[(j, *g, k)]
        return ir.sum(given[(i, *g, k)].cast(ir.i32) * factor.cast(ir.i32), k)

    products = ir.compute((*groups, rows, wide), product, "products")
    row_sums = ir.compute(
        x.shape[:-1], lambda *i: ir.sum(x[(*i, of_x)].cast(ir.i32), of_x), "row_sums"
    )
    column_sums = ir.compute(
        (columns, *groups),
        lambda *i: ir.sum(weight(*i, of_w).cast(ir.i32), of_w),
        "column_sums",
    )

    def at(i: ir.Expr, *j: Any) -> ir.Expr:
        """The parts by row and column first: epilogues read what is there before."""
        less = row_sums[(i, *j[1:])] * _HALF if signed else ir.as_expr(0, ir.i32)
        less = zero_points(i, less, lambda zero: less + zero * column_sums[j])
        return products[(*j[1:], i, j[0])] - less

    return at


def _padded(x: ir.Tensor, depth: int) -> ir.Tensor:
    """Rows padded with zeros."""
    last = ir.as_expr(int(x.shape[1]) - 1)

    def element(i: ir.Expr, k: ir.Expr) -> ir.Expr:
        read: ir.Expr = x[i, ir.binary("min", k, last)]
        return ir.select(k <= last, read, ir.as_expr(0, x.dtype))

    return ir.compute((x.shape[0], depth), element, "padded")


def _by_row(given: ir.Tensor | None, x: ir.Tensor, name: str) -> Callable[..., ir.Expr]:
    """Apply an optional value of each row, or of all: `(row, otherwise, applied)`."""
    if given is None:
        return lambda _, otherwise, __: otherwise
    single = given.ndim == 1 and given.shape[0] == 1
    per_row = given.ndim == x.ndim - 1 and given.shape == x.shape[:-1]
    ir.require(
        single or per_row,
        f"{name} of shape {given.shape} is neither one number nor one per row of x, "
        f"{x.shape[:-1]}",
    )
    flat = given if single else ir.reshaped(given, (math.prod(x.shape[:-1]),))
    kind = ir.f32 if given.dtype.is_float else ir.i32
    return lambda row, _, applied: applied(flat[0 if single else row].cast(kind))


def _quantized(
    value: ir.Expr, scale: ir.Expr, zero_point: ir.Expr, dtype: ir.DType
) -> ir.Expr:
    """The value in units of a scale, rounded and clipped to an integer type."""
    low, high = (ir.as_expr(float(limit), ir.f32) for limit in dtype.limits)
    value = ir.round(value / scale.cast(ir.f32)) + zero_point.cast(ir.f32)
    return ir.minimum(ir.maximum(value, low), high).cast(dtype)


def _check_result(dtype: ir.DType, scale: ir.Expr, zero_point: ir.Expr) -> None:
    """Check the type of the result and, of an integer result, what it stands for."""
    ir.require(
        dtype.name in _RESULTS,
        f"dtype is one of {', '.join(_RESULTS)}, not {dtype}",
        DTypeError,
    )
    if dtype.is_float:
        return
    least, most = map(int, dtype.limits)
    for condition in (scale >= _LEAST, scale <= _MOST):  # NaN is neither
        ir.require(
            condition,
            f"y_scale is a finite f32 greater than 0, from {_LEAST:.3g} to {_MOST:.3g}",
            ArgumentError,
        )
    for condition in (zero_point >= least, zero_point <= most):
        ir.require(
            condition,
            f"y_zero_point is a value of {dtype}, from {least} to {most}",
            ArgumentError,
        )
