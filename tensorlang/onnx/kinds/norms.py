"""Norms, in ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorlang.errors import GraphError
from tensorlang.graph.values import Node
from tensorlang.onnx.functions import TRAINING
from tensorlang.onnx.writer import Writer, argument


def _ones(x: Any, extent: Any) -> Any:
    return np.ones(extent, x.spec.numpy)


def layer_norm(writer: Writer, node: Node) -> Any:
    """A norm of the last dimension."""
    x, weight = node.args[0], argument(node, 1, "weight", None)
    bias, eps = argument(node, 2, "bias", None), argument(node, 3, "eps", 1e-5)
    w = writer.name(_ones(x, x.shape[-1]) if weight is None else weight, x)
    names = [w] if bias is None else [w, writer.name(bias)]
    return writer.emit(
        "LayerNormalization", writer.name(x), *names, axis=-1, epsilon=eps
    )


def rms_norm(writer: Writer, node: Node) -> Any:
    """A norm by the mean square, by a function that stands in the file."""
    x, weight = node.args[0], argument(node, 1, "weight", None)
    w = writer.name(_ones(x, x.shape[-1]) if weight is None else weight, x)
    eps = float(argument(node, 2, "eps", 1e-6))
    return writer.call("rms_norm", writer.name(x), w, eps=eps)


def _norm_arrays(writer: Writer, node: Node) -> tuple[list[str], int]:
    """Names of image, moments, weight and bias; and the axis of channels."""
    x, mean, var = node.args[:3]
    channels = mean.shape
    weight, bias = argument(node, 3, "weight", None), argument(node, 4, "bias", None)
    w = _ones(x, channels) if weight is None else weight
    b = _ones(x, channels) * 0 if bias is None else bias
    return [writer.name(v, x) for v in (x, mean, var, w, b)], node.kwargs.get("axis", 1)


def batch_norm(writer: Writer, node: Node) -> Any:
    """A batch norm in use."""
    (x, mean, var, w, b), axis = _norm_arrays(writer, node)
    if axis != 1:
        raise GraphError(f"{node.place}: ONNX has batch norms of axis 1, not {axis}")
    eps = node.kwargs.get("eps", 1e-5)
    return writer.emit("BatchNormalization", x, w, b, mean, var, epsilon=eps)


def batch_norm_train(writer: Writer, node: Node) -> Any:
    """A batch norm that asks whether it is trained."""
    (x, mean, var, w, b), axis = _norm_arrays(writer, node)
    rank = node.args[0].ndim
    axes = [at for at in range(rank) if at != axis % rank]
    return writer.call(
        "batch_norm_train",
        *(x, mean, var, w, b, TRAINING),
        results=3,
        axes=axes,
        inner=axes,
        momentum=float(node.kwargs.get("momentum", 0.1)),
        eps=float(node.kwargs.get("eps", 1e-5)),
    )
