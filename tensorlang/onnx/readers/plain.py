"""Elementwise operators, reductions, products and activations of ONNX as ours."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorlang.graph.values import Value
from tensorlang.onnx.calls import Call, Reader
from tensorlang.ops import math, nn


def same(op: Any) -> Reader:
    """A reader of what is ours with the same arguments."""

    def read(call: Call) -> Any:
        return op(*[_number(x) for x in call.inputs])

    return read


def _number(x: Any) -> Any:
    """A constant of one element as a number, which takes the type of the other side."""
    if isinstance(x, np.ndarray) and not x.ndim and x.dtype.kind in "iuf":
        return x.item()
    return x


def reduced(op: Any) -> Reader:
    """A reader of a reduction over axes."""

    def read(call: Call) -> Any:
        given = call.given.get("axes")
        axes = call.known(1, "axes") if given is None else given
        none = axes is None or not len(axes)
        if none and call.given.get("noop_with_empty_axes"):
            return call.inputs[0]
        over = None if none else tuple(int(a) for a in axes)
        return op(call.inputs[0], over, bool(call.given.get("keepdims", 1)))

    return read


def gemm(call: Call) -> Any:
    """A product of two matrices, scaled and added to."""
    a, b, c = call.inputs[0], call.inputs[1], call.input(2)
    if call.given.get("transA"):
        a = nn.transpose(a, (1, 0))
    layout = "oi" if call.given.get("transB") else "io"
    scales = call.given.get("alpha", 1.0), call.given.get("beta", 1.0)
    if scales == (1.0, 1.0) and (c is None or c.ndim == 1):
        return nn.dense(a, b, c, layout=layout)
    y = math.multiply(nn.dense(a, b, layout=layout), float(scales[0]))
    return y if c is None else math.add(y, math.multiply(c, float(scales[1])))


def matmul(call: Call) -> Any:
    """A product of matrices; of a matrix of weights, a dense layer."""
    a, b = call.inputs
    if isinstance(b, Value) and b.ndim == 2 and a.ndim > 2:
        return nn.dense(a, b, layout="io")
    return math.matmul(a, b)


def along(op: Any) -> Reader:
    """A reader of what works along an axis."""
    return lambda call: op(call.inputs[0], int(call.given.get("axis", -1)))


def clip(call: Call) -> Any:
    """The numbers between two bounds."""
    low, high = (call.known(at, "a bound") for at in (1, 2))
    bounds = (None if b is None else float(b) for b in (low, high))
    return math.clip(call.inputs[0], *bounds)


def cast(call: Call) -> Any:
    """The same type, or truth values of numbers."""
    from tensorlang.onnx.files import library  # noqa: PLC0415 - of the onnx extra

    x = call.inputs[0]
    wanted = library().helper.tensor_dtype_to_np_dtype(call.given["to"])
    if wanted.kind == "b":
        return math.not_equal(x, 0)
    if x.spec.numpy != wanted:
        raise call.refuse(f"we have no cast of {x.spec} to {wanted}")
    return x


def gelu(call: Call) -> Any:
    """GELU, exact or by tanh."""
    return nn.gelu(call.inputs[0], call.given.get("approximate", "none"))


def leaky(call: Call) -> Any:
    """Leaky ReLU with its slope."""
    return nn.leaky_relu(call.inputs[0], meant(call.given.get("alpha", 0.01)))


def meant(value: float) -> float:
    """A number that a file keeps in 32 bits, as it was meant: 1e-05, not 9.99e-06."""
    return float(str(np.float32(value)))


def elu(call: Call) -> Any:
    """ELU: below 0, alpha (e^x - 1)."""
    x, alpha = call.inputs[0], meant(call.given.get("alpha", 1.0))
    below = math.multiply(math.expm1(math.minimum(x, 0.0)), alpha)
    return math.where(math.greater(x, 0.0), x, below)


def prelu(call: Call) -> Any:
    """Below 0, the numbers times a slope that is learnt."""
    x, slope = call.inputs
    return math.where(math.greater(x, 0.0), x, math.multiply(x, slope))


def hard_sigmoid(call: Call) -> Any:
    """A ramp from 0 to 1."""
    given = call.given.get("alpha", 0.2), call.given.get("beta", 0.5)
    return _ramp(call.inputs[0], *map(meant, given))


def hard_swish(call: Call) -> Any:
    """The numbers times a ramp from 0 to 1."""
    x = call.inputs[0]
    return math.multiply(x, _ramp(x, 1 / 6, 0.5))


def _ramp(x: Any, slope: float, middle: float) -> Any:
    return math.clip(math.add(math.multiply(x, slope), middle), 0.0, 1.0)


def place(op: Any) -> Reader:
    """A reader of where the largest or least number of an axis is."""

    def read(call: Call) -> Any:
        axis, keep = call.given.get("axis", 0), call.given.get("keepdims", 1)
        if call.given.get("select_last_index"):
            raise call.refuse("of equal numbers we take the first")
        return op(call.inputs[0], axis, bool(keep))

    return read
