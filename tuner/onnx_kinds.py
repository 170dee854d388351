"""What a node of an ONNX file is among our workloads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """A workload of a network, as `tensorlang.tune` takes it.

    Attributes:
        op: The operator's id.
        shapes: Of its arrays.
        dtype: Of its arrays.
        attributes: As pairs.
    """

    op: str
    shapes: tuple[Shape, ...]
    dtype: str
    attributes: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        sizes = ", ".join("x".join(map(str, shape)) for shape in self.shapes)
        named = "".join(f", {name}={value}" for name, value in self.attributes)
        return f"{self.op}({self.dtype} {sizes}{named})"


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the graph with what is known of it."""

    kind: str
    shapes: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    dtype: str
    attributes: Mapping[str, Any]


def _gemm(node: Node) -> Found:
    a, b = node.shapes[:2]
    if node.attributes.get("transA"):
        a = a[::-1]
    given = "oi" if node.attributes.get("transB") else "io"
    return Found("nn.dense", (a, b), node.dtype, (("layout", given),))


def _matmul(node: Node) -> Found:
    a, b = node.shapes
    if len(b) == 2:
        rows = (math.prod(a[:-1]), a[-1])
        return Found("nn.dense", (rows, b), node.dtype, (("layout", "io"),))
    return Found("math.matmul", (a, b), node.dtype)


def _conv(node: Node) -> Found:
    x, w = node.shapes[:2]
    rank, given = len(x) - 2, node.attributes
    pads = given.get("pads", (0,) * 2 * rank)
    padding: tuple[int, ...] | str = tuple(pads[:rank])
    if tuple(pads[rank:]) != padding or given.get("auto_pad", "NOTSET") != "NOTSET":
        padding = "same" if "SAME" in str(given.get("auto_pad")) else padding
    named = {
        "stride": given.get("strides", (1,) * rank),
        "padding": padding,
        "dilation": given.get("dilations", (1,) * rank),
        "groups": given.get("group", 1),
    }
    return Found(f"nn.conv{rank}d", (x, w), node.dtype, tuple(named.items()))


def _pool(name: str) -> Callable[[Node], Found]:
    def translate(node: Node) -> Found:
        x, given = node.shapes[0], node.attributes
        rank = len(x) - 2
        named = {
            "kernel": given["kernel_shape"],
            "stride": given.get("strides", (1,) * rank),
            "padding": tuple(given.get("pads", (0,) * rank)[:rank]),
        }
        return Found(f"nn.{name}{rank}d", (x,), node.dtype, tuple(named.items()))

    return translate


def _same(op: str, **attributes: object) -> Callable[[Node], Found]:
    """An operator of the node's first array alone."""

    def translate(node: Node) -> Found:
        return Found(op, node.shapes[:1], node.dtype, tuple(attributes.items()))

    return translate


def _along(op: str) -> Callable[[Node], Found]:
    def translate(node: Node) -> Found:
        axis = node.attributes.get("axis", -1)
        return Found(op, node.shapes[:1], node.dtype, (("axis", axis),))

    return translate


def _norm(node: Node) -> Found:
    return Found("nn.layer_norm", node.shapes[:3], node.dtype)


def _own_dense(node: Node) -> Found:
    """The function of our own files: a weight `[out, in]` behind any dimensions."""
    x, w = node.shapes[:2]
    rows = (math.prod(x[:-1]), x[-1])
    return Found("nn.dense", (rows, w), node.dtype, (("layout", "oi"),))


def _rms_norm(node: Node) -> Found:
    return Found("nn.rms_norm", node.shapes[:2], node.dtype)


KINDS: Final[dict[str, Callable[[Node], Found]]] = {
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Conv": _conv,
    "MaxPool": _pool("max_pool"),
    "AveragePool": _pool("avg_pool"),
    "Softmax": _along("nn.softmax"),
    "LogSoftmax": _along("nn.log_softmax"),
    "LayerNormalization": _norm,
    "Relu": _same("nn.relu"),
    "Gelu": _same("nn.gelu"),
    "Sigmoid": _same("nn.sigmoid"),
    "Tanh": _same("nn.tanh"),
    "Erf": _same("math.erf"),
    # the functions of our own files
    "dense": _own_dense,
    "dense_without_bias": _own_dense,
    "gelu": _same("nn.gelu"),
    "gelu_tanh": _same("nn.gelu", approximate="tanh"),
    "silu": _same("nn.silu"),
    "rms_norm": _rms_norm,
}
# what costs nothing, is folded into others, or does nothing in use
FREE: Final = frozenset(
    (
        *("Constant", "Identity", "Flatten", "Reshape", "Shape"),
        *("Unsqueeze", "Squeeze", "If", "Loop", "Dropout"),
        *("dropout", "dropout_train", "split"),
    )
)
