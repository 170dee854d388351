"""Functions of one array, element by element."""

from __future__ import annotations

from tensorlang import ir
from tensorlang.ops.elementwise import elementwise
from tensorlang.ops.signature import Float, Real


@elementwise("math.negative", onnx="Neg")
def negative(x: Real) -> Real:
    """-x; integers wrap."""
    return -x


@elementwise("math.abs", onnx="Abs")
def abs(x: Real) -> Real:
    """Absolute value."""
    return x if x.dtype.kind == "uint" else ir.unary("abs", x)


@elementwise("math.sign", onnx="Sign")
def sign(x: Real) -> Real:
    """1 above 0, -1 below, 0 at 0 and at NaN."""
    one, zero = ir.as_expr(1, x.dtype), ir.as_expr(0, x.dtype)
    rest = zero if x.dtype.kind == "uint" else ir.select(x < zero, -one, zero)
    return ir.select(x > zero, one, rest)


@elementwise("math.square")
def square(x: Real) -> Real:
    """`x * x`; integers wrap."""
    return x * x


@elementwise("math.exp", onnx="Exp")
def exp(x: Float) -> Float:
    """`exp(x)`, e to the power x."""
    return ir.exp(x)


@elementwise("math.expm1")
def expm1(x: Float) -> Float:
    """exp(x) - 1, accurate near 0."""
    return ir.expm1(x)


@elementwise("math.log", onnx="Log")
def log(x: Float) -> Float:
    """Natural logarithm; -inf at 0, NaN below."""
    return ir.log(x)


@elementwise("math.log1p")
def log1p(x: Float) -> Float:
    """log(1 + x), accurate near 0."""
    return ir.log1p(x)


@elementwise("math.sqrt", onnx="Sqrt")
def sqrt(x: Float) -> Float:
    """Square root; NaN below 0."""
    return ir.sqrt(x)


@elementwise("math.rsqrt")
def rsqrt(x: Float) -> Float:
    """1 / sqrt(x); inf at 0."""
    return 1.0 / ir.sqrt(x)


@elementwise("math.reciprocal", onnx="Reciprocal")
def reciprocal(x: Float) -> Float:
    """1 / x."""
    return 1.0 / x


@elementwise("math.erf", onnx="Erf")
def erf(x: Float) -> Float:
    """The error function."""
    return ir.erf(x)


@elementwise("math.sin", onnx="Sin")
def sin(x: Float) -> Float:
    """Sine of radians, of any size."""
    return ir.sin(x)


@elementwise("math.cos", onnx="Cos")
def cos(x: Float) -> Float:
    """Cosine of radians, of any size."""
    return ir.cos(x)


@elementwise("math.tanh", onnx="Tanh")
def tanh(x: Float) -> Float:
    """Hyperbolic tangent."""
    return ir.tanh(x)


@elementwise("math.floor", onnx="Floor")
def floor(x: Float) -> Float:
    """The largest whole number not above x."""
    return ir.floor(x)


@elementwise("math.ceil", onnx="Ceil")
def ceil(x: Float) -> Float:
    """The smallest whole number not below x."""
    return ir.ceil(x)
