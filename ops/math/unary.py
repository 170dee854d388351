"""Elementwise functions of one array."""

from __future__ import annotations

import math

from tensorlang import ir
from tensorlang.ops.elementwise import elementwise
from tensorlang.ops.spec.signature import Float, Real


@elementwise("math.negative", onnx="Neg")
def negative(x: Real) -> Real:
    """Elementwise `-x`; integers wrap."""
    return -x


@elementwise("math.abs", onnx="Abs")
def abs(x: Real) -> Real:
    """Elementwise absolute value."""
    return x if x.dtype.kind == "uint" else ir.unary("abs", x)


@elementwise("math.sign", onnx="Sign")
def sign(x: Real) -> Real:
    """Sign of x: 1, 0 or -1; 0 for NaN."""
    one, zero = ir.as_expr(1, x.dtype), ir.as_expr(0, x.dtype)
    rest = zero if x.dtype.kind == "uint" else ir.select(x < zero, -one, zero)
    return ir.select(x > zero, one, rest)


@elementwise("math.square")
def square(x: Real) -> Real:
    """Elementwise `x * x`; integers wrap."""
    return x * x


@elementwise("math.exp", onnx="Exp")
def exp(x: Float) -> Float:
    """Exponential, `e ** x`."""
    return ir.exp(x)


@elementwise("math.expm1")
def expm1(x: Float) -> Float:
    """`exp(x) - 1`, accurate near 0."""
    return ir.expm1(x)


@elementwise("math.log", onnx="Log")
def log(x: Float) -> Float:
    """Natural logarithm; -inf at 0, NaN for negative x."""
    return ir.log(x)


@elementwise("math.log1p")
def log1p(x: Float) -> Float:
    """`log(1 + x)`, accurate near 0."""
    return ir.log1p(x)


@elementwise("math.sqrt", onnx="Sqrt")
def sqrt(x: Float) -> Float:
    """Square root; NaN for negative x."""
    return ir.sqrt(x)


@elementwise("math.rsqrt")
def rsqrt(x: Float) -> Float:
    """Reciprocal square root, `1 / sqrt(x)`; inf at 0."""
    return 1.0 / ir.sqrt(x)


@elementwise("math.reciprocal", onnx="Reciprocal")
def reciprocal(x: Float) -> Float:
    """Reciprocal, `1 / x`."""
    return 1.0 / x


@elementwise("math.erf", onnx="Erf")
def erf(x: Float) -> Float:
    """Error function."""
    return ir.erf(x)


@elementwise("math.sin", onnx="Sin")
def sin(x: Float) -> Float:
    """Sine of x in radians, accurate for arguments of any magnitude."""
    return ir.sin(x)


@elementwise("math.cos", onnx="Cos")
def cos(x: Float) -> Float:
    """Cosine of x in radians, accurate for arguments of any magnitude."""
    return ir.cos(x)


@elementwise("math.tanh", onnx="Tanh")
def tanh(x: Float) -> Float:
    """Hyperbolic tangent."""
    return ir.tanh(x)


@elementwise("math.floor", onnx="Floor")
def floor(x: Real) -> Real:
    """Round down to an integer."""
    return ir.floor(x) if x.dtype.is_float else x


@elementwise("math.ceil", onnx="Ceil")
def ceil(x: Real) -> Real:
    """Round up to an integer."""
    return ir.ceil(x) if x.dtype.is_float else x


@elementwise("math.round", onnx="Round")
def round(x: Real) -> Real:
    """Round to the nearest whole number, ties to even."""
    return ir.round(x) if x.dtype.is_float else x


@elementwise("math.tan", onnx="Tan")
def tan(x: Float) -> Float:
    """Tangent of x in radians."""
    return ir.sin(x) / ir.cos(x)


@elementwise("math.sinh", onnx="Sinh")
def sinh(x: Float) -> Float:
    """Hyperbolic sine, accurate near 0."""
    size = ir.unary("abs", x)
    less, root = ir.expm1(size), ir.exp(size * 0.5)
    large = root * 0.5 * root  # where e^x overflows, this may not
    return _odd(x, ir.select(size < 20.0, (less + less / (less + 1.0)) * 0.5, large))


def _odd(x: Float, of_size: Float) -> Float:
    """The value of an odd function, from that of the absolute value."""
    return ir.select(x.equal(0), x, ir.select(x < 0, -of_size, of_size))


@elementwise("math.cosh", onnx="Cosh")
def cosh(x: Float) -> Float:
    """Hyperbolic cosine."""
    half = ir.exp(ir.unary("abs", x) * 0.5)
    return half * 0.5 * half + 0.5 / half / half


@elementwise("math.asinh", onnx="Asinh")
def asinh(x: Float) -> Float:
    """Inverse hyperbolic sine, accurate near 0."""
    size = ir.unary("abs", x)
    square = size * size
    small = ir.log1p(size + square / (1.0 + ir.sqrt(square + 1.0)))
    large = ir.log(size) + math.log(2)  # where the square may overflow
    return _odd(x, ir.select(size < 1e9, small, large))


@elementwise("math.acosh", onnx="Acosh")
def acosh(x: Float) -> Float:
    """Inverse hyperbolic cosine; NaN below 1."""
    above = x - 1.0
    small = ir.log1p(above + ir.sqrt(above * above + above * 2.0))
    return ir.select(x < 1e9, small, ir.log(x) + math.log(2))


@elementwise("math.atanh", onnx="Atanh")
def atanh(x: Float) -> Float:
    """Inverse hyperbolic tangent, accurate near 0; NaN outside of -1 and 1."""
    size = ir.unary("abs", x)
    return _odd(x, ir.log1p(size * 2.0 / (1.0 - size)) * 0.5)
