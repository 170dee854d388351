"""One of several values: by a condition, or by bounds."""

from __future__ import annotations

import math

from tensorlang import ir
from tensorlang.errors import ArgumentError
from tensorlang.ops.elementwise import elementwise
from tensorlang.ops.math.binary import maximum, minimum
from tensorlang.ops.signature import Float, Real, Truth, Value


@elementwise("math.where", onnx="Where")
def where(cond: Truth, a: Value, b: Value) -> Value:
    """`a` where the condition is true, else `b`."""
    return ir.select(cond, a, b)


def _least(dtype: str) -> float:
    kind = ir.DType(dtype)
    return -math.inf if kind.is_float else kind.limits[0]


def _most(dtype: str) -> float:
    kind = ir.DType(dtype)
    return math.inf if kind.is_float else kind.limits[1]


@elementwise("math.clip", missing={"low": _least, "high": _most})
def clip(x: Real, low: Real | None = None, high: Real | None = None) -> Real:
    """x, but no less than `low`, and then no more than `high`; NaN stays NaN.

    Args:
        low: A Python number, an array of `x`'s type that broadcasts, or None.
        high: The same.
    """
    if low is None or high is None:
        raise ArgumentError("give a lower bound, an upper one, or both")
    bounded: Real = minimum.element(maximum.element(x, low), high)
    return bounded


# of several that are equal any might be chosen: x has all of it, as in PyTorch
@clip.gradient
def clip_grad(
    dy: Float, x: Float, low: Float, high: Float
) -> tuple[Float, Float, Float]:
    """The gradients of `math.clip`: dy for the one of the three that it gave."""
    return (
        ir.select((x >= low) & (x <= high), dy, 0.0),
        ir.select((x < low) & (low < high), dy, 0.0),
        ir.select((x > high) | (high < low), dy, 0.0),
    )
