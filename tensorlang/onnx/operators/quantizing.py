"""Quantization, and products of integers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from tensorlang.errors import DTypeError, ShapeError
from tensorlang.graph.values import Tensor
from tensorlang.onnx.calls import Operand, dtype_in, dtype_of
from tensorlang.onnx.folding import to_value
from tensorlang.onnx.operators.data_movement import axis_of
from tensorlang.onnx.operators.elementwise import converted
from tensorlang.onnx.operators.gathering import known_shape
from tensorlang.onnx.operators.images import convolved
from tensorlang.onnx.operators.resizing import repeated
from tensorlang.onnx.reading import Ints, Results, reads
from tensorlang.ops import math, nn

_F32: Final = np.dtype(np.float32)
_EXACT: Final = 1 << 24  # integers up to here are exact in f32


def _along(x: Tensor, given: Operand, axis: int, block: int) -> Tensor:
    """Scales or zero points, shaped to broadcast with x."""
    value = to_value(given)
    if value.ndim == 0 or value.shape == (1,):
        one: Tensor = nn.reshape(value, ())
        return one
    at = axis_of(axis, x.ndim)
    if block:
        if value.ndim != x.ndim:
            raise ShapeError(f"scales of {value.spec} for blocks of {x.spec}")
        return repeated(value, at, block)[(*[slice(None)] * at, slice(0, x.shape[at]))]
    if value.shape != (x.shape[at],):
        raise ShapeError(f"scales of {value.spec} along axis {axis} of {x.spec}")
    made: Tensor = nn.reshape(value, (-1, *[1] * (x.ndim - at - 1)))
    return made


@reads("QuantizeLinear", since=10)
def quantize(
    x: Tensor,
    y_scale: Operand,
    y_zero_point: Operand | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Results:
    """Numbers in units of a scale, rounded to even, from a zero point."""
    del precision, saturate  # computed in f32; of 8-bit floats
    kind = np.dtype(np.uint8)
    if y_zero_point is not None:
        kind = dtype_in(y_zero_point)
    elif output_dtype:
        kind = dtype_of(output_dtype, "the result")
    scale = converted(_along(x, y_scale, axis, block_size), _F32)
    units = math.divide(converted(x, _F32), scale)
    if y_zero_point is None:
        return _rounded(units, None, kind)
    return _rounded(units, _along(x, y_zero_point, axis, block_size), kind)


def _rounded(units: Tensor, zero: Tensor | None, kind: np.dtype) -> Tensor:
    """Rounded to even, moved by a zero point, and clipped to a type."""
    if kind.kind not in "iu" or kind.itemsize > 2:
        raise DTypeError(f"numbers are quantized to 8 or 16 bits, not {kind}")
    whole, limits = math.round(units), np.iinfo(kind)
    moved = whole if zero is None else math.add(whole, converted(zero, _F32))
    clipped = math.clip(moved, float(limits.min), float(limits.max))
    made: Tensor = math.cast(clipped, kind.name)
    return made


@reads("DequantizeLinear", since=10)
def dequantize(
    x: Tensor,
    x_scale: Operand,
    x_zero_point: Operand | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Results:
    """Integers from a zero point, times a scale."""
    kind = dtype_of(output_dtype, "the result") if output_dtype else dtype_in(x_scale)
    scale = converted(_along(x, x_scale, axis, block_size), _F32)
    value = converted(x, _F32)
    if x_zero_point is not None:
        zero = _along(x, x_zero_point, axis, block_size)
        value = math.subtract(value, converted(zero, _F32))
    return converted(math.multiply(value, scale), kind)


def _signed(x: Operand) -> Operand:
    """8-bit integers as signed ones: unsigned ones less 128."""
    if dtype_in(x) == np.int8:
        return x
    if isinstance(x, np.ndarray):
        return (x.astype(np.int16) - 128).astype(np.int8)
    made: Tensor = math.cast(math.subtract(math.cast(x, "i16"), 128), "i8")
    return made


def _product(
    a: Operand, b: Operand, a_zero: Operand | None, b_zero: Operand | None
) -> Tensor:
    """The exact product of integers less their zero points, in i32."""
    whole = np.dtype(np.int32)
    zeros = [
        np.zeros((), np.int32) if zero is None else converted(zero, whole)
        for zero in (a_zero, b_zero)
    ]
    left, right = zeros
    if left.ndim == 1 and left.shape != (1,):
        left = nn.reshape(to_value(left), (-1, 1))
    depth = known_shape(a)[-1]
    if b.ndim != 2 or a.ndim < 2 or left.shape not in {(), (1,)}:
        return _wide_product(a, b, left, right, depth)
    matrix = _signed(b)
    if isinstance(matrix, np.ndarray):
        weight = to_value(np.ascontiguousarray(matrix.T))
    else:
        weight = nn.transpose(matrix, (1, 0))
    ones = np.ones(1, np.float32)
    zero = None if a_zero is None else nn.reshape(to_value(a_zero), (1,))
    x = to_value(a)
    sums: Tensor = nn.dense_int8(x, weight, ones, zero_points=zero, dtype="i32")
    if dtype_in(b) == np.uint8:
        right = math.subtract(to_value(right), 128)
    if isinstance(right, np.ndarray) and not right.any():
        return sums
    rows = math.sum(math.cast(x, "i32"), -1, True)
    rows = math.cast(rows, "i32") - math.multiply(to_value(left), depth)
    made: Tensor = math.subtract(sums, math.multiply(rows, to_value(right)))
    return made


def exact_type(terms: int) -> str:
    """The type of floats in which sums of so many products of bytes are exact."""
    return "f32" if terms * 255 * 255 <= _EXACT else "f64"


def _wide_product(
    a: Operand, b: Operand, left: Operand, right: Operand, depth: int
) -> Tensor:
    """The product in floats that hold it exactly."""
    kind = exact_type(depth)
    pair = [
        math.cast(math.subtract(math.cast(to_value(x), "i32"), to_value(zero)), kind)
        for x, zero in ((a, left), (b, right))
    ]
    made: Tensor = math.cast(math.matmul(*pair), "i32")
    return made


@reads("MatMulInteger")
def matmul_integer(
    a: Operand,
    b: Operand,
    a_zero_point: Operand | None = None,
    b_zero_point: Operand | None = None,
) -> Results:
    """The product of 8-bit integers less their zero points, in 32 bits."""
    return _product(a, b, a_zero_point, b_zero_point)


@reads("QLinearMatMul")
def matmul_quantized(  # noqa: PLR0917 - ONNX's order
    a: Operand,
    a_scale: Operand,
    a_zero_point: Operand,
    b: Operand,
    b_scale: Operand,
    b_zero_point: Operand,
    y_scale: Operand,
    y_zero_point: Operand,
) -> Results:
    """The product of quantized arrays, quantized again."""
    sums = converted(_product(a, b, a_zero_point, b_zero_point), _F32)
    rows = converted(to_value(a_scale), _F32)
    if rows.ndim == 1 and rows.shape != (1,):
        rows = nn.reshape(rows, (-1, 1))
    scale = math.multiply(rows, converted(to_value(b_scale), _F32))
    units = math.divide(math.multiply(sums, scale), converted(to_value(y_scale), _F32))
    return _rounded(units, to_value(y_zero_point), dtype_in(y_zero_point))


def _convolution(
    x: Operand,
    w: Operand,
    x_zero: Operand | None,
    w_zero: Operand | None,
    attributes: Mapping[str, object],
) -> Tensor:
    """The exact convolution of integers less their zero points, in floats."""
    kind = exact_type(int(np.prod(known_shape(w)[1:])))
    pair = []
    for array, zero, axis in ((x, x_zero, 1), (w, w_zero, 0)):
        value = math.cast(to_value(array), kind)
        if zero is not None:
            value = math.subtract(value, math.cast(_along(value, zero, axis, 0), kind))
        pair.append(value)
    made: Tensor = convolved(*pair, **attributes)
    return made


@reads("ConvInteger")
def convolution_integer(
    x: Operand,
    w: Operand,
    x_zero_point: Operand | None = None,
    w_zero_point: Operand | None = None,
    *,
    auto_pad: str,
    dilations: Ints | None = None,
    group: int,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Results:
    """The convolution of 8-bit integers less their zero points, in 32 bits."""
    given = {"auto_pad": auto_pad, "dilations": dilations, "group": group}
    given |= {"kernel_shape": kernel_shape, "pads": pads, "strides": strides}
    return math.cast(_convolution(x, w, x_zero_point, w_zero_point, given), "i32")


@reads("QLinearConv")
def convolution_quantized(  # noqa: PLR0917 - ONNX's order
    x: Operand,
    x_scale: Operand,
    x_zero_point: Operand,
    w: Operand,
    w_scale: Operand,
    w_zero_point: Operand,
    y_scale: Operand,
    y_zero_point: Operand,
    b: Operand | None = None,
    *,
    auto_pad: str,
    dilations: Ints | None = None,
    group: int,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Results:
    """The convolution of quantized images, quantized again."""
    given = {"auto_pad": auto_pad, "dilations": dilations, "group": group}
    given |= {"kernel_shape": kernel_shape, "pads": pads, "strides": strides}
    sums = _convolution(x, w, x_zero_point, w_zero_point, given)
    if b is not None:
        sums = math.add(sums, math.cast(_along(sums, b, 1, 0), sums.spec.dtype))
    scale = math.multiply(_along(sums, w_scale, 1, 0), to_value(x_scale))
    units = math.divide(math.multiply(math.cast(sums, "f32"), scale), to_value(y_scale))
    return _rounded(units, to_value(y_zero_point), dtype_in(y_zero_point))
