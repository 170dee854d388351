"""Elementwise selection by a condition, and clipping to bounds."""

from __future__ import annotations

import math

from tensorlang import ir
from tensorlang.errors import ArgumentError
from tensorlang.ops.elementwise import elementwise
from tensorlang.ops.math.binary import maximum, minimum
from tensorlang.ops.spec.signature import Float, Real, Truth, Value


@elementwise("math.where", onnx="Where")
def where(cond: Truth, a: Value, b: Value) -> Value:
    """Elementwise `a` where `cond` is true, `b` elsewhere."""
    return ir.select(cond, a, b)


def _least(dtype: str) -> float:
    return ir.DType(dtype).lowest


def _most(dtype: str) -> float:
    kind = ir.DType(dtype)
    return math.inf if kind.is_float else kind.limits[1]


@elementwise("math.clip", missing={"low": _least, "high": _most})
def clip(x: Real, low: Real | None = None, high: Real | None = None) -> Real:
    """Clip to bounds: `min(max(x, low), high)`; NaN stays NaN.

    Args:
        low: Lower bound: a Python number, an array of `x`'s dtype that broadcasts, or
            None for no bound.
        high: Upper bound, likewise; at least one of the two is required.
    """
    if low is None or high is None:
        raise ArgumentError("give a lower bound, an upper one, or both")
    bounded: Real = minimum.element(maximum.element(x, low), high)
    return bounded


# where x equals a bound, x receives all of dy, as in PyTorch
@clip.gradient
def clip_grad(
    dy: Float, x: Float, low: Float, high: Float
) -> tuple[Float, Float, Float]:
    """The gradients of `math.clip`: dy for whichever of x, low, high was returned."""
    return (
        ir.select((x >= low) & (x <= high), dy, 0.0),
        ir.select((x < low) & (low < high), dy, 0.0),
        ir.select((x > high) | (high < low), dy, 0.0),
    )
