"""Normalisation and dropout."""

from __future__ import annotations

import numpy as np

from tensorlang import graph
from tensorlang.errors import GraphError, ShapeError
from tensorlang.graph.scopes import training
from tensorlang.graph.values import Node, Tensor
from tensorlang.onnx.calls import Call, as_decimal
from tensorlang.onnx.expansion import expanded
from tensorlang.onnx.functions import TRAINING
from tensorlang.onnx.operators.shapes import filled
from tensorlang.onnx.reading import Number, Results, reads
from tensorlang.onnx.writer import Writer, argument, writes
from tensorlang.ops import math, nn


@reads("LayerNormalization")
def layer_norm(
    x: Tensor, scale: Tensor, b: Tensor | None = None, *, axis: int, epsilon: float
) -> Results:
    """Layer norm over the dimensions from an axis on."""
    normal = x.shape[axis:] if -x.ndim <= axis < x.ndim else ()
    if scale.shape != normal or (b is not None and b.shape != normal):
        raise ShapeError(f"axis {axis} of {x.spec}, with scale {scale.shape}")
    return nn.layer_norm(x, scale, b, epsilon)


@reads("RMSNormalization")
def rms_norm(
    call: Call, x: Tensor, scale: Tensor, *, axis: int, epsilon: float, stash_type: int
) -> Results:
    """RMS norm over the dimensions from an axis on, computed in f32 at least."""
    normal = x.shape[axis:] if -x.ndim <= axis < x.ndim else ()
    if scale.shape != normal or stash_type != 1:
        return expanded(call)
    return nn.rms_norm(x, scale, epsilon)


@reads("InstanceNormalization")
def instance_norm(
    input: Tensor, scale: Tensor, b: Tensor, *, epsilon: float
) -> Results:
    """Instance norm: each channel is a group."""
    return nn.group_norm(input, scale.shape[0], scale, b, epsilon)


@reads("LpNormalization")
def lp_norm(input: Tensor, *, axis: int, p: int) -> Results:
    """Numbers along an axis divided by their norm; zeros stay."""
    if p not in {1, 2}:
        raise GraphError(f"attribute p={p} is not supported")
    size = math.abs(input) if p == 1 else math.square(input)
    norm = math.sum(size, axis, True)
    norm = norm if p == 1 else math.sqrt(norm)
    return math.divide(input, math.where(math.equal(norm, 0), 1, norm))


@reads("LRN")
def local_response(
    x: Tensor, *, alpha: float, beta: float, bias: float, size: int
) -> Results:
    """Numbers divided by a power of the mean square of neighbouring channels."""
    before = (size - 1) // 2
    rows = nn.reshape(math.square(x), (x.shape[0], 1, x.shape[1], -1))
    ends = ((before, size - 1 - before), (0, 0))
    mean = nn.avg_pool2d(nn.pad(rows, ((0, 0), (0, 0), *ends)), (size, 1), 1)
    scale = math.add(math.multiply(mean, alpha), bias)
    return math.divide(x, nn.reshape(math.power(scale, beta), x.shape))


@reads("BatchNormalization")
def batch_norm(  # noqa: PLR0917 - ONNX's order
    call: Call,
    x: Tensor,
    scale: Tensor,
    b: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    epsilon: float,
    momentum: float,
    training_mode: bool = False,
    is_test: bool = True,
) -> Results:
    """Batch norm with running moments, or with batch moments in training.

    The file's `training_mode` applies while the network is trained; in inference the
    running moments are used in any case.
    """
    several = len([name for name in call.outputs if name]) > 1
    if (several and not training_mode) or not is_test:
        raise GraphError("training is supported as training_mode, from opset 14 on")
    if not (training_mode and training()):
        return nn.batch_norm(x, mean, var, scale, b, eps=epsilon), mean, var
    given = {"momentum": as_decimal(1 - momentum), "eps": epsilon}
    y, *after = nn.batch_norm_train(x, mean, var, scale, b, **given)
    for name, value in zip(call.names[3:], after, strict=True):
        if name not in call.program.moments:
            raise GraphError("its running moments must be initializers of the file")
        graph.write(call.program.moments[name], value)
    return (y, *after)


@reads("Dropout")
def dropout(
    call: Call,
    data: Tensor,
    ratio: Number = 0.5,
    training_mode: Number = False,
    *,
    seed: int | None = None,
    is_test: bool = True,
) -> Results:
    """Dropout with a key of the network's own in training; the identity in inference.

    The seed is ignored, as ONNX does not specify a generator.
    """
    del seed
    if not is_test:
        raise GraphError("training is supported as training_mode, from opset 12 on")
    if training_mode and ratio and call.names[2] in call.program.fixed:
        raise GraphError("training_mode is true at a call; train the model instead")
    if training() and training_mode and ratio:
        return call.program.dropped(data, as_decimal(ratio))
    if call.version < 12 or len(call.outputs) < 2:
        return data  # the mask output is not consistent across runtimes before opset 12
    return data, filled(data.shape, np.ones((), bool))


def _ones(x: Tensor, extent: int | tuple[int, ...]) -> np.ndarray:
    return np.ones(extent, x.spec.numpy)


@writes("nn.layer_norm")
def write_layer_norm(writer: Writer, node: Node) -> str:
    """Layer norm of the last dimension."""
    x, weight = node.args[0], argument(node, 1, "weight", None)
    bias, eps = argument(node, 2, "bias", None), argument(node, 3, "eps", 1e-5)
    w = writer.name(_ones(x, x.shape[-1]) if weight is None else weight, x)
    names = [w] if bias is None else [w, writer.name(bias)]
    return writer.emit(
        "LayerNormalization", writer.name(x), *names, axis=-1, epsilon=eps
    )


@writes("nn.rms_norm")
def write_rms_norm(writer: Writer, node: Node) -> str:
    """RMS norm, as a function in the file."""
    x, weight = node.args[0], argument(node, 1, "weight", None)
    w = writer.name(_ones(x, x.shape[-1]) if weight is None else weight, x)
    eps = float(argument(node, 2, "eps", 1e-6))
    return writer.call("rms_norm", writer.name(x), w, eps=eps)


def _norm_arrays(writer: Writer, node: Node) -> tuple[list[str], int]:
    """Names of input, moments, weight and bias; and the channel axis."""
    x, mean, var = node.args[:3]
    channels = mean.shape
    weight, bias = argument(node, 3, "weight", None), argument(node, 4, "bias", None)
    w = _ones(x, channels) if weight is None else weight
    b = _ones(x, channels) * 0 if bias is None else bias
    return [writer.name(v, x) for v in (x, mean, var, w, b)], node.kwargs.get("axis", 1)


@writes("nn.batch_norm")
def write_batch_norm(writer: Writer, node: Node) -> str:
    """Batch norm in inference."""
    (x, mean, var, w, b), axis = _norm_arrays(writer, node)
    if axis != 1:
        raise GraphError(f"{node.place}: ONNX has batch norms of axis 1, not {axis}")
    eps = node.kwargs.get("eps", 1e-5)
    return writer.emit("BatchNormalization", x, w, b, mean, var, epsilon=eps)


@writes("nn.batch_norm_train")
def write_batch_norm_train(writer: Writer, node: Node) -> list[str]:
    """Batch norm that depends on the training input."""
    (x, mean, var, w, b), axis = _norm_arrays(writer, node)
    rank = node.args[0].ndim
    axes = [at for at in range(rank) if at != axis % rank]
    return writer.call_all(
        "batch_norm_train",
        *(x, mean, var, w, b, TRAINING),
        results=3,
        axes=axes,
        inner=axes,
        momentum=float(node.kwargs.get("momentum", 0.1)),
        eps=float(node.kwargs.get("eps", 1e-5)),
    )
