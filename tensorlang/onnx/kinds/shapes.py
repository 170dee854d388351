"""What moves elements and computes nothing, in ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np

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


def split(writer: Writer, node: Node) -> Any:
    """An array in parts."""
    x, axis = node.args[0], argument(node, 2, "axis", 0)
    sizes = [part.shape[axis % x.ndim] for part in node.results]
    if any(isinstance(size, Dim) for size in sizes):
        raise GraphError(f"{node.place}: ONNX is written for parts of known sizes")
    made = writer.emit(
        "Split", writer.name(x), writer.whole(*sizes), results=len(sizes), axis=axis
    )
    return made if len(sizes) > 1 else [made]


def stack(writer: Writer, node: Node) -> Any:
    """Arrays along a new dimension."""
    axis, at = argument(node, 1, "axis", 0), writer.whole
    names = [
        writer.emit("Unsqueeze", writer.name(each), at(axis)) for each in node.args[0]
    ]
    return writer.emit("Concat", *names, axis=axis)


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


_FIRST, _LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def cut(writer: Writer, node: Node) -> Any:
    """Some places of some dimensions."""
    x = node.args[0]
    begin, end, step = (
        _spread(argument(node, at, name, None), x.ndim)
        for at, name in enumerate(("begin", "end", "step"), 1)
    )
    bounds = [
        (axis, *_bounds(node, low, high, 1 if by is None else by))
        for axis, (low, high, by) in enumerate(zip(begin, end, step, strict=True))
        if (low, high, by) != (None, None, None)
    ]
    if not bounds:
        return writer.emit("Identity", writer.name(x))
    axes, starts, ends, steps = (
        writer.whole(*each) for each in zip(*bounds, strict=True)
    )
    return writer.emit("Slice", writer.name(x), starts, ends, axes, steps)


def _spread(given: Any, rank: int) -> tuple[Any, ...]:
    """A bound for each dimension."""
    known = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    return known + (None,) * (rank - len(known))


def _bounds(node: Node, low: Any, high: Any, step: int) -> tuple[int, int, int]:
    """First place, the place before which it ends, and step, as ONNX has them."""
    if isinstance(low, Dim) or isinstance(high, Dim):
        raise GraphError(f"{node.place}: ONNX is written for slices of known bounds")
    first, last = (0, _LAST) if step > 0 else (_LAST, _FIRST)
    return (first if low is None else low), (last if high is None else high), step


def put_back(writer: Writer, node: Node) -> Any:
    """Zeros around a slice."""
    dy, x = node.args[:2]
    begin, end, step = (
        _spread(argument(node, at, name, None), x.ndim)
        for at, name in enumerate(("begin", "end", "step"), 2)
    )
    if any(by not in {None, 1} for by in step):
        raise GraphError(f"{node.place}: ONNX is written for slices back of step 1")
    pairs = [
        (0, 0) if low is high is None else _around(node, low, high, extent)
        for low, high, extent in zip(begin, end, x.shape, strict=True)
    ]
    ends = [low for low, _ in pairs] + [high for _, high in pairs]
    return writer.emit("Pad", writer.name(dy), writer.whole(*ends))


def _around(node: Node, low: Any, high: Any, extent: Any) -> tuple[int, int]:
    """The places before a slice, and those behind it."""
    if not isinstance(extent, int):
        raise GraphError(f"{node.place}: ONNX is written for slices of known sizes")
    taken = range(extent)[low:high]
    return taken.start, extent - len(taken) - taken.start


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
