"""Elementwise arithmetic on two operands, with broadcasting."""

from __future__ import annotations

import math
from typing import Final

from tensorlang import ir
from tensorlang.ops.elementwise import elementwise
from tensorlang.ops.spec.signature import Float, Integer, Real, Value

_STEPS: Final = 6  # of a float remainder


@elementwise("math.add", onnx="Add")
def add(a: Value, b: Value) -> Value:
    """Elementwise `a + b`; integers wrap, bool operands are OR-ed."""
    return a | b if a.dtype.is_bool else a + b


@elementwise("math.subtract", onnx="Sub")
def subtract(a: Real, b: Real) -> Real:
    """Elementwise `a - b`; integers wrap."""
    return a - b


@elementwise("math.multiply", onnx="Mul")
def multiply(a: Value, b: Value) -> Value:
    """Elementwise `a * b`; integers wrap, bool operands are AND-ed."""
    return a & b if a.dtype.is_bool else a * b


@elementwise("math.divide", onnx="Div")
def divide(a: Float, b: Float) -> Float:
    """Elementwise `a / b` of floats."""
    return a / b


@elementwise("math.maximum", onnx="Max")
def maximum(a: Value, b: Value) -> Value:
    """Elementwise maximum; NaN where either operand is NaN."""
    if a.dtype.is_bool:
        return a | b
    if a.dtype.is_integer:
        return ir.binary("max", a, b)
    return ir.select((a > b) | a.not_equal(a), a, b)


@elementwise("math.minimum", onnx="Min")
def minimum(a: Value, b: Value) -> Value:
    """Elementwise minimum; NaN where either operand is NaN."""
    if a.dtype.is_bool:
        return a & b
    if a.dtype.is_integer:
        return ir.binary("min", a, b)
    return ir.select((a < b) | a.not_equal(a), a, b)


# ties split dy evenly, as in PyTorch; with a NaN operand, both receive all of it
@maximum.gradient
def maximum_grad(dy: Float, a: Float, b: Float) -> tuple[Float, Float]:
    """The gradients of `math.maximum`: dy for the larger operand, dy / 2 at ties."""
    return _unless(dy, a < b, a.equal(b)), _unless(dy, b < a, a.equal(b))


@minimum.gradient
def minimum_grad(dy: Float, a: Float, b: Float) -> tuple[Float, Float]:
    """The gradients of `math.minimum`: dy for the smaller operand, dy / 2 at ties."""
    return _unless(dy, a > b, a.equal(b)), _unless(dy, b > a, a.equal(b))


def _unless(dy: Float, lost: Float, tied: Float) -> Float:
    return ir.select(lost, 0.0, ir.select(tied, dy * 0.5, dy))


@elementwise("math.power", onnx="Pow")
def power(a: Real, b: Real) -> Real:
    """Elementwise `a ** b`.

    Integers wrap. An integer to a negative power is 0, except that 1 and -1 give their
    inverse, as in PyTorch.
    """
    return _whole_power(a, b) if a.dtype.is_integer else ir.pow(a, b)


@elementwise("math.floor_divide")
def floor_divide(a: Real, b: Real) -> Real:
    """Elementwise `a // b`, rounded down; of integers 0 where b is 0, as in NumPy."""
    if a.dtype.is_float:
        return _float_quotient(a, b)
    zero, one = ir.as_expr(0, a.dtype), ir.as_expr(1, a.dtype)
    odd = b.equal(zero)
    if a.dtype.kind == "uint":
        return ir.select(odd, zero, _quotient(a, ir.select(odd, one, b)))
    minus = b.equal(-1)  # -a, which wraps for the minimum
    safe = _quotient(a, ir.select(odd | minus, one, b))
    return ir.select(odd, zero, ir.select(minus, zero - a, safe))


@elementwise("math.trunc_divide")
def trunc_divide(a: Real, b: Real) -> Real:
    """Elementwise `a / b`, rounded toward zero; of integers 0 where b is 0."""
    if a.dtype.is_float:
        return ir.trunc(a / b)
    floor: ir.Expr = floor_divide.element(a, b)
    if a.dtype.kind == "uint":
        return floor
    rest = a - floor * b
    up = b.not_equal(0) & rest.not_equal(0) & (a < 0).not_equal(b < 0)
    return ir.select(up, floor + 1, floor)


@elementwise("math.remainder")
def remainder(a: Real, b: Real) -> Real:
    """Elementwise remainder, with the sign of b; of integers 0 where b is 0.

    Of floats it is exact, rounded once, as long as `|a / b|` is below 2^318; where b is
    0 or a is infinite, it is NaN.
    """
    if a.dtype.is_float:
        rest, divisor = _float_remainder(a, b)
        moved = rest.not_equal(0.0) & (rest < 0.0).not_equal(divisor < 0.0)
        return ir.select(moved, rest + divisor, rest).cast(a.dtype)
    return ir.select(b.equal(0), 0, a - floor_divide.element(a, b) * b)


def _float_remainder(a: Real, b: Real) -> tuple[Real, Real]:
    """The remainder with the sign of a, and b, in f64.

    Each step takes a rounded multiple of b off, which is exact by one fma, and leaves a
    quotient that is shorter by 53 bits.
    """
    rest, divisor = a.cast("f64"), b.cast("f64")
    for _ in range(_STEPS):
        rest = ir.fma(-ir.trunc(rest / divisor), divisor, rest)
    size, whole = ir.unary("abs", divisor), a.cast("f64")
    over = rest.not_equal(0.0) & (rest < 0.0).not_equal(whole < 0.0)
    rest = ir.select(over, rest + ir.select(whole < 0.0, -size, size), rest)
    endless = size.equal(math.inf) & (ir.unary("abs", whole) < math.inf)
    return ir.select(endless, whole, rest), divisor


def _float_quotient(a: Real, b: Real) -> Real:
    """The quotient less the remainder's share, as Python and NumPy compute it."""
    rest, divisor = _float_remainder(a, b)
    whole = a.cast("f64")
    moved = rest.not_equal(0.0) & (rest < 0.0).not_equal(divisor < 0.0)
    count = ir.round((whole - rest) / divisor)
    floor = ir.select(moved, count - 1.0, count)
    return ir.select(divisor.equal(0.0), whole / divisor, floor).cast(a.dtype)


def _quotient(a: Integer, b: Integer) -> Integer:
    """Floor quotient; up to 32 bits in f64, which is exact enough and vectorises."""
    if a.dtype.bits > 32:
        return a // b
    return ir.floor(a.cast("f64") / b.cast("f64")).cast(a.dtype)


def _whole_power(a: Integer, b: Integer) -> Integer:
    """Exponentiation by squaring; only 1 and -1 have an integer inverse."""
    one, signed = ir.as_expr(1, a.dtype), a.dtype.kind == "int"
    made, square = one, a
    for bit in range(a.dtype.bits):
        last = signed and bit == a.dtype.bits - 1
        mask = ir.as_expr(a.dtype.limits[0] if last else 1 << bit, a.dtype)
        made = ir.select((b & mask).equal(0), made, made * square)
        square = square * square
    if not signed:
        return made
    sign = ir.select((b & one).equal(0), one, a)
    inverse = ir.select(a.equal(1) | a.equal(-1), sign, 0)
    return ir.select(b < 0, inverse, made)
