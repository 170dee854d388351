"""What moves elements and computes nothing, in ONNX."""

from __future__ import annotations

from typing import Any

from tensorlang.errors import GraphError
from tensorlang.graph.specs import Dim
from tensorlang.graph.values import Node
from tensorlang.onnx.writer import Writer, argument


def flatten(writer: Writer, node: Node) -> Any:
    """All dimensions behind the batch as one."""
    return writer.emit("Flatten", writer.name(node.args[0]), axis=1)


def reshape(writer: Writer, node: Node) -> Any:
    """Another shape, with one open size at most."""
    (x, *_), shape = node.args, node.results[0].shape
    open_ = [at for at, extent in enumerate(shape) if isinstance(extent, Dim)]
    if len(open_) > 1 and [shape[at] for at in open_] != [x.shape[at] for at in open_]:
        raise GraphError(f"{node.place}: ONNX reshapes to one open size, not {shape}")
    sign = 0 if len(open_) > 1 else -1
    numbers = [sign if isinstance(extent, Dim) else extent for extent in shape]
    return writer.emit("Reshape", writer.name(x), writer.whole(*numbers))


def transpose(writer: Writer, node: Node) -> Any:
    """The dimensions in another order."""
    x = node.args[0]
    axes = argument(node, 1, "axes", None) or tuple(range(x.ndim))[::-1]
    return writer.emit("Transpose", writer.name(x), perm=[a % x.ndim for a in axes])


def concatenate(writer: Writer, node: Node) -> Any:
    """Arrays behind each other."""
    names = map(writer.name, node.args[0])
    return writer.emit("Concat", *names, axis=argument(node, 1, "axis", 0))


def embedding(writer: Writer, node: Node) -> Any:
    """Rows of a table."""
    ids, table = node.args[:2]
    return writer.emit("Gather", writer.name(table), writer.name(ids), axis=0)


def pad(writer: Writer, node: Node) -> Any:
    """A constant around an array."""
    x, pairs = node.args[0], argument(node, 1, "padding", None)
    value = argument(node, 2, "value", None)
    ends = [low for low, _ in pairs] + [high for _, high in pairs]
    around = writer.name(0 if value is None else value, x)
    return writer.emit("Pad", writer.name(x), writer.whole(*ends), around)


def inside(writer: Writer, node: Node) -> Any:
    """What lies inside of a padding: a slice."""
    dy, pairs = node.args[0], argument(node, 2, "padding", None)
    cut = [axis for axis, pair in enumerate(pairs) if tuple(pair) != (0, 0)]
    starts = [pairs[axis][0] for axis in cut]
    ends = [node.results[0].shape[axis] + pairs[axis][0] for axis in cut]
    if any(isinstance(end, Dim) for end in ends):
        raise GraphError(f"{node.place}: ONNX is written for slices of known sizes")
    bounds = [writer.whole(*each) for each in (starts, ends, cut)]
    return writer.emit("Slice", writer.name(dy), *bounds)
