"""Elementwise comparisons and logic; results are bool."""

from __future__ import annotations

from tensorlang import ir
from tensorlang.ops.elementwise import elementwise
from tensorlang.ops.spec.signature import Float, Truth, Value


@elementwise("math.equal", onnx="Equal")
def equal(a: Value, b: Value) -> Truth:
    """Elementwise `a == b`."""
    return a.equal(b)


@elementwise("math.not_equal")
def not_equal(a: Value, b: Value) -> Truth:
    """Elementwise `a != b`."""
    return a.not_equal(b)


@elementwise("math.less", onnx="Less")
def less(a: Value, b: Value) -> Truth:
    """Elementwise `a < b`."""
    return a < b


@elementwise("math.less_equal", onnx="LessOrEqual")
def less_equal(a: Value, b: Value) -> Truth:
    """Elementwise `a <= b`."""
    return a <= b


@elementwise("math.greater", onnx="Greater")
def greater(a: Value, b: Value) -> Truth:
    """Elementwise `a > b`."""
    return a > b


@elementwise("math.greater_equal", onnx="GreaterOrEqual")
def greater_equal(a: Value, b: Value) -> Truth:
    """Elementwise `a >= b`."""
    return a >= b


@elementwise("math.logical_and", onnx="And")
def logical_and(a: Value, b: Value) -> Truth:
    """Elementwise logical and; nonzero numbers are true."""
    return _truth(a) & _truth(b)


@elementwise("math.logical_or", onnx="Or")
def logical_or(a: Value, b: Value) -> Truth:
    """Elementwise logical or; nonzero numbers are true."""
    return _truth(a) | _truth(b)


@elementwise("math.logical_xor", onnx="Xor")
def logical_xor(a: Value, b: Value) -> Truth:
    """Elementwise exclusive or; nonzero numbers are true."""
    return _truth(a).not_equal(_truth(b))


@elementwise("math.logical_not", onnx="Not")
def logical_not(x: Value) -> Truth:
    """Elementwise logical not; nonzero numbers are true."""
    return ~_truth(x)


@elementwise("math.isnan", onnx="IsNaN")
def isnan(x: Float) -> Truth:
    """True where x is NaN."""
    return ir.isnan(x)


@elementwise("math.isinf")
def isinf(x: Float) -> Truth:
    """True where x is positive or negative infinity."""
    return ir.isinf(x)


def _truth(x: Value) -> Truth:
    return x if x.dtype.is_bool else x.not_equal(ir.as_expr(0, x.dtype))
