"""Elementwise functions of one array."""

from __future__ import annotations

from tensorlang import ir
from tensorlang.ops.elementwise import elementwise
from tensorlang.ops.signature import Float, Real


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
def floor(x: Float) -> Float:
    """Round down to an integer."""
    return ir.floor(x)


@elementwise("math.ceil", onnx="Ceil")
def ceil(x: Float) -> Float:
    """Round up to an integer."""
    return ir.ceil(x)
