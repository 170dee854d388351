"""Symmetric quantisation to 8 or 4 bits: per tensor, per row, or per group of a row."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, TypeAlias

from tensorlang import ir
from tensorlang.errors import DTypeError
from tensorlang.ops.spec.definition import operator
from tensorlang.ops.spec.signature import Arrays, ElementType, Singles

Bytes: TypeAlias = Annotated["ir.Tensor", Arrays("quantised numbers", ("u8", "i8"))]
Narrowed: TypeAlias = Annotated[
    "ir.Tensor", Arrays("activations", ("f32", "bf16", "f16"))
]

Bits: TypeAlias = Literal[8, 4]
_LARGEST: Final[dict[int, int]] = {8: 127, 4: 7}
NIBBLE_ZERO: Final = 8  # the four bits that stand for 0
_USUAL: Final = (1024, 1024)


@operator("nn.quantize", shapes=(_USUAL,), whole=True)
def quantize(
    x: Narrowed, *, per: Literal["row", "tensor"] | int = "row", bits: Bits = 8
) -> tuple[ir.Tensor, ir.Tensor]:
    """Round to integers with a scale: `round(x / scale)` and `scale`.

    A scale is the largest absolute value that shares it, divided by 127, or by 7 for 4
    bits. NaN becomes 0, and so does everything that shares a scale with an infinity.

    Args:
        x: Floats of f32, bf16 or f16, `[..., n]`.
        per: What shares a scale: a `row` along the last dimension, the whole `tensor`,
            or a number of adjacent elements of a row, which divides `n`.
        bits: 8: int8 of the shape of `x`. 4: uint8 `[..., n / 2]`, two to a byte: those
            of even index in the lower four bits, and a value of 8 stands for 0.
        out: Two output arrays: the integers, and f32 scales: `[1]` per tensor,
            `x.shape[:-1]` per row, `[..., n / per]` per group.

    Raises:
        ShapeError: groups do not divide a row, or an odd number is stored in pairs.
    """
    ir.require(x.ndim > 0, "x has no dimension to quantise along")
    *lead, depth = *x.shape[:-1], int(x.shape[-1])
    group = per if isinstance(per, int) else depth
    ir.require(
        group > 0 and depth % group == 0 if isinstance(per, int) else True,
        f"groups of {group} do not divide rows of {depth}",
    )
    ir.require(
        bits == 8 or (depth % 2 == 0 and group % 2 == 0),
        f"4-bit numbers are stored in pairs: rows of {depth} in groups of {group} "
        "have an odd number",
    )
    count = depth // group if isinstance(per, int) else 1
    elements = math.prod(x.shape) if depth else 0
    shape = (1, elements) if per == "tensor" else (*lead, count, group)
    held = ir.reshaped(x, (math.prod(shape[:-1]), shape[-1]))
    rows = ir.rows.Rows(held)
    top = rows.fold_long("max", lambda at: _absolute(rows[at]), "top")
    scales = rows.row(  # 0 for no elements
        lambda row: ir.select(top[row] < 0.0, 0.0, top[row] / float(_LARGEST[bits])),
        "scales",
    )

    def element(row: object, place: object) -> ir.Expr:
        scale = top[row] / float(_LARGEST[bits])
        value = ir.round(ir.select(scale > 0.0, rows[row, place] / scale, 0.0))
        limit = ir.as_expr(float(_LARGEST[bits]), ir.f32)
        return ir.minimum(ir.maximum(value, -limit), limit).cast(ir.i8)

    def pair(row: Any, place: Any) -> ir.Expr:
        low, high = (
            (element(row, place * 2 + n) + NIBBLE_ZERO).cast(ir.u8) for n in range(2)
        )
        return low | (high << ir.as_expr(4, ir.u8))

    if bits == 4:
        q = ir.compute((held.shape[0], shape[-1] // 2), pair, "q")
        q = ir.reshaped(q, (*lead, depth // 2))
    else:
        q = ir.reshaped(ir.compute(held.shape, element, "q"), x.shape)
    if per == "tensor":
        return q, ir.reshaped(scales, (1,))
    return q, ir.reshaped(scales, (*lead, count) if isinstance(per, int) else lead)


def _absolute(value: ir.Expr) -> ir.Expr:
    return ir.select(value < 0.0, -value, value)


@operator(
    "nn.dequantize", shapes=(_USUAL, (1024,)), whole=True, gradient={"linear": False}
)
def dequantize(
    q: Bytes, scales: Singles, *, bits: Bits = 8, dtype: ElementType = "f32"
) -> ir.Tensor:
    """The numbers that integers stand for: `q * scale`.

    Args:
        q: Integers as `nn.quantize` makes them: int8, or uint8 in pairs of 4 bits.
        scales: f32, as `nn.quantize` makes them: `[1]`, `q.shape[:-1]`, or one more
            dimension for groups of a row.
        bits: 8 or 4.
        dtype: Type of the result: `f32`, `bf16` or `f16`.
        out: Output array, `[..., n]`.

    Raises:
        ShapeError: the scales do not fit.
        DTypeError: 4 bits that are not uint8, 8 that are not int8, or no float type.
    """
    ir.require(
        (q.dtype == ir.u8) == (bits == 4),
        f"{bits}-bit numbers are not {q.dtype}",
        DTypeError,
    )
    ir.require(
        dtype.is_float and dtype != ir.f64,
        f"dtype is f32, bf16 or f16, not {dtype}",
        DTypeError,
    )
    ir.require(q.ndim > 0, "q has no dimension to dequantise along")
    lead, width = q.shape[:-1], int(q.shape[-1])
    rows = math.prod(lead)
    depth = width * 8 // bits
    single = scales.ndim == 1 and scales.shape[0] == 1
    grouped = scales.ndim == q.ndim
    ir.require(
        single
        or (scales.ndim == len(lead) and scales.shape == lead)
        or (grouped and scales.shape[:-1] == lead),
        f"scales of shape {scales.shape} do not fit numbers of shape {q.shape}",
    )
    count = int(scales.shape[-1]) if grouped and not single else 1
    held = ir.reshaped(q, (rows, width))
    flat = scales if single else ir.reshaped(scales, (rows, count))
    weight = weights(held, flat, bits)
    made = ir.compute((rows, depth), lambda r, c: weight(r, c).cast(dtype), "x")
    return ir.reshaped(made, (*lead, depth))


def half(octet: ir.Expr, which: ir.Expr) -> ir.Expr:
    """The f32 number in the lower (0) or the upper (1) four bits of a byte."""
    bits = (octet.cast(ir.i32) >> which.cast(ir.i32) * 4) & 15
    return (bits - NIBBLE_ZERO).cast(ir.f32)


def weights(
    q: ir.Tensor, scales: ir.Tensor, bits: int
) -> Callable[[Any, Any], ir.Expr]:
    """An accessor `(row, place)` of the f32 numbers that a matrix stands for.

    Args:
        q: `[rows, n]`, int8, or uint8 `[rows, n / 2]`.
        scales: `[1]`, `[rows]`, or `[rows, groups]`.
        bits: 8 or 4.

    Raises:
        ShapeError: groups do not divide a row.
    """
    depth = int(q.shape[-1]) * 8 // bits
    count = int(scales.shape[1]) if scales.ndim == 2 else 1
    ir.require(
        depth % count == 0 if count else depth == 0,
        f"{count} groups do not divide {depth} numbers",
    )
    length = max(depth // max(count, 1), 1)

    def at(row: Any, place: Any) -> ir.Expr:
        row, place = ir.as_expr(row), ir.as_expr(place)
        if bits == 8:
            number = q[row, place].cast(ir.f32)
        else:
            number = half(q[row, place // 2], place % 2)
        if scales.ndim == 2:
            return number * scales[row, place // length]
        return number * scales[row if scales.shape[0] != 1 else 0]

    return at
