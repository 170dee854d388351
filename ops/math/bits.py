"""Elementwise operations on the bits of integers."""

from __future__ import annotations

from tensorlang import ir
from tensorlang.ops.elementwise import elementwise
from tensorlang.ops.spec.signature import Integer, Value


@elementwise("math.bitwise_and", onnx="BitwiseAnd")
def bitwise_and(a: Integer, b: Integer) -> Integer:
    """Elementwise `a & b`."""
    return a & b


@elementwise("math.bitwise_or", onnx="BitwiseOr")
def bitwise_or(a: Integer, b: Integer) -> Integer:
    """Elementwise `a | b`."""
    return a | b


@elementwise("math.bitwise_xor", onnx="BitwiseXor")
def bitwise_xor(a: Integer, b: Integer) -> Integer:
    """Elementwise `a ^ b`."""
    return a ^ b


@elementwise("math.invert", onnx="BitwiseNot")
def invert(x: Integer) -> Integer:
    """Elementwise `~x`."""
    return ~x


@elementwise("math.left_shift")
def left_shift(a: Integer, b: Integer) -> Integer:
    """Elementwise `a << b`; 0 where b is negative, or the width of the type or more."""
    inside = _inside(b)
    return ir.select(inside, a << ir.select(inside, b, 0), 0)


@elementwise("math.right_shift")
def right_shift(a: Integer, b: Integer) -> Integer:
    """Elementwise `a >> b`, arithmetic for signed types.

    Where b is negative, or the width of the type or more, all bits are the sign.
    """
    most = ir.as_expr(a.dtype.bits - 1, a.dtype)
    shifted = a >> ir.select(_inside(b), b, most)
    signed = a.dtype.kind == "int"
    return shifted if signed else ir.select(_inside(b), shifted, 0)


def _inside(b: Integer) -> Value:
    below = b < ir.as_expr(b.dtype.bits, b.dtype)
    return below if b.dtype.kind == "uint" else below & (b >= 0)
