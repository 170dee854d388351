"""Elementwise functions of one array."""

from __future__ import annotations

import math
from typing import Final

from tensorlang import ir
from tensorlang.ops.elementwise import elementwise
from tensorlang.ops.spec.signature import Float, Real

# arctangent for |x| < tan(pi / 8): x + x z P(z) / Q(z) of z = x * x (Moshier, Cephes)
_ATAN_P: Final = (
    -8.750608600031904122785e-1,
    -1.615753718733365076637e1,
    -7.500855792314704667340e1,
    -1.228866684490136173410e2,
    -6.485021904942025371773e1,
)
_ATAN_Q: Final = (
    1.0,
    2.485846490142306297962e1,
    1.650270098316988542046e2,
    4.328810604912902668951e2,
    4.853903996359136964868e2,
    1.945506571482613964425e2,
)


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


@elementwise("math.atan", onnx="Atan")
def atan(x: Float) -> Float:
    """Inverse tangent, between -pi / 2 and pi / 2."""
    return _arctangent(x)


def _arctangent(x: Float) -> Float:
    size = ir.unary("abs", x)
    far, middle = size > math.tan(3 * math.pi / 8), size > math.tan(math.pi / 8)
    outer = ir.select(far, -1.0 / size, (size - 1.0) / (size + 1.0))
    near = ir.select(middle, outer, size)
    zero, quarter = (ir.as_expr(each, x.dtype) for each in (0.0, math.pi / 4))
    angle = ir.select(far, quarter * 2.0, ir.select(middle, quarter, zero))
    z = near * near
    share = z * _polynomial(_ATAN_P, z) / _polynomial(_ATAN_Q, z)
    return _odd(x, angle + (near + near * share))


def _polynomial(coefficients: tuple[float, ...], z: Float) -> Float:
    """A polynomial by Horner's rule, the highest power first."""
    made: Float = ir.as_expr(coefficients[0], z.dtype)
    for each in coefficients[1:]:
        made = made * z + each
    return made


@elementwise("math.asin", onnx="Asin")
def asin(x: Float) -> Float:
    """Inverse sine, between -pi / 2 and pi / 2; NaN outside of -1 and 1."""
    return _arctangent(x / ir.sqrt((1.0 - x) * (1.0 + x)))


@elementwise("math.acos", onnx="Acos")
def acos(x: Float) -> Float:
    """Inverse cosine, between 0 and pi; NaN outside of -1 and 1."""
    return _arctangent(ir.sqrt((1.0 - x) / (1.0 + x))) * 2.0


# shorter, and more accurate, than what follows from the fractions
@atan.gradient
def atan_grad(dy: Float, x: Float) -> Float:
    """The gradient of `math.atan`."""
    return dy / (1.0 + x * x)


@asin.gradient
def asin_grad(dy: Float, x: Float) -> Float:
    """The gradient of `math.asin`."""
    return dy / ir.sqrt((1.0 - x) * (1.0 + x))


@acos.gradient
def acos_grad(dy: Float, x: Float) -> Float:
    """The gradient of `math.acos`."""
    return -dy / ir.sqrt((1.0 - x) * (1.0 + x))
