"""Activations and softmax."""

from __future__ import annotations

from math import prod
from typing import Final

from tensorlang.errors import GraphError, ShapeError
from tensorlang.graph.values import Node, Tensor
from tensorlang.onnx.calls import Call
from tensorlang.onnx.reading import Read, Results, reads
from tensorlang.onnx.writer import Write, Writer, argument, writes
from tensorlang.ops import Operator, math, nn

_ALONG: Final = {"Softmax": nn.softmax, "LogSoftmax": nn.log_softmax}


def _along(op: Operator) -> Read:
    def read(call: Call, input: Tensor, *, axis: int) -> Results:
        """Softmax along an axis; before version 13, over all axes from there on."""
        if not -input.ndim <= axis < max(input.ndim, 1):
            raise ShapeError(f"axis {axis} of {input.spec}")
        if call.version >= 13 or axis in {-1, input.ndim - 1} or not input.ndim:
            return op(input, axis)
        outer, inner = input.shape[:axis], input.shape[axis:]
        known = all(isinstance(extent, int) for extent in inner)
        row = prod(inner) if known else -1
        rows = nn.reshape(input, (*outer, row))
        return nn.reshape(op(rows, -1), input.shape)

    return read


def _write_along(kind: str) -> Write:
    def write(writer: Writer, node: Node) -> str:
        axis = argument(node, 1, "axis", -1)
        return writer.emit(kind, writer.name(node.args[0]), axis=axis)

    return write


for _kind, _op in _ALONG.items():
    reads(_kind)(_along(_op))
    writes(_op.id)(_write_along(_kind))


@reads("Gelu")
def gelu(x: Tensor, *, approximate: str) -> Results:
    """GELU, exact or with the tanh approximation."""
    return nn.gelu(x, approximate)


@writes("nn.gelu")
def write_gelu(writer: Writer, node: Node) -> str:
    """GELU, as a function in the file."""
    how = argument(node, 1, "approximate", "none")
    name = "gelu" if how == "none" else "gelu_tanh"
    return writer.call(name, writer.name(node.args[0]))


@reads("LeakyRelu")
def leaky_relu(x: Tensor, *, alpha: float) -> Results:
    """Leaky ReLU."""
    return nn.leaky_relu(x, alpha)


@writes("nn.leaky_relu")
def write_leaky_relu(writer: Writer, node: Node) -> str:
    """Leaky ReLU."""
    slope = argument(node, 1, "negative_slope", 0.01)
    return writer.emit("LeakyRelu", writer.name(node.args[0]), alpha=slope)


@reads("Softplus")
def softplus(x: Tensor) -> Results:
    """log(1 + e^x)."""
    return nn.softplus(x)


@writes("nn.softplus")
def write_softplus(writer: Writer, node: Node) -> str:
    """Softplus with beta 1."""
    beta, threshold = (
        argument(node, at, name, usual)
        for at, name, usual in ((1, "beta", 1.0), (2, "threshold", 20.0))
    )
    if (beta, threshold) != (1, 20):
        raise GraphError(f"{node.place}: ONNX only has softplus with beta 1")
    return writer.emit("Softplus", writer.name(node.args[0]))


@reads("Elu")
def elu(x: Tensor, *, alpha: float) -> Results:
    """Alpha (e^x - 1) below 0."""
    below = math.multiply(math.expm1(math.minimum(x, 0.0)), alpha)
    return math.where(math.less(x, 0.0), below, x)


@reads("PRelu")
def prelu(call: Call, x: Tensor, slope: Tensor) -> Results:
    """X times a learned slope below 0."""
    if call.version < 7 and x.ndim > 1:  # one slope, or one per channel
        slope = nn.reshape(slope, (-1, *[1] * (x.ndim - 2)))
    made = math.where(math.less(x, 0), math.multiply(x, slope), x)
    if made.shape != x.shape:
        raise ShapeError(
            f"a slope of shape {slope.shape} does not broadcast to {x.spec}"
        )
    return made


@reads("HardSigmoid")
def hard_sigmoid(x: Tensor, *, alpha: float, beta: float) -> Results:
    """A ramp from 0 to 1."""
    return math.clip(math.add(math.multiply(x, alpha), beta), 0.0, 1.0)


@reads("Selu")
def selu(x: Tensor, *, alpha: float, gamma: float) -> Results:
    """A scaled ELU."""
    return math.multiply(elu(x, alpha=alpha), gamma)


@reads("Shrink")
def shrink(input: Tensor, *, bias: float, lambd: float) -> Results:
    """0 near 0, moved towards 0 elsewhere."""
    low = math.where(math.less(input, -lambd), math.add(input, bias), 0)
    return math.where(math.greater(input, lambd), math.subtract(input, bias), low)
