"""Data movement: slicing, concatenation, gathering, padding."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from tensorlang.errors import GraphError, ShapeError
from tensorlang.graph.specs import Dim, Extent
from tensorlang.graph.values import Key, Node, Tensor, Value
from tensorlang.onnx.calls import Call, Operand
from tensorlang.onnx.folding import checked_size, foldable, folded, tidy, to_value
from tensorlang.onnx.operators.elementwise import where
from tensorlang.onnx.reading import Ints, Number, Results, Sizes, reads
from tensorlang.onnx.writer import Writer, argument, writes
from tensorlang.ops import math, nn

_FARTHEST: Final = (1 << 31) - 1
_FIRST, _LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_concatenate, _transpose = foldable(nn.concatenate), foldable(nn.transpose)


@reads("Concat", folds=True)
def concat(*inputs: Operand, axis: int) -> Results:
    """Concatenation along an axis."""
    return _concatenate(list(inputs), axis)


@writes("nn.concatenate")
def write_concat(writer: Writer, node: Node) -> str:
    """Concatenation along an axis."""
    names = map(writer.name, node.args[0])
    return writer.emit("Concat", *names, axis=argument(node, 1, "axis", 0))


@writes("nn.stack")
def write_stack(writer: Writer, node: Node) -> str:
    """Concatenation along a new dimension."""
    axis, at = argument(node, 1, "axis", 0), writer.whole
    names = [
        writer.emit("Unsqueeze", writer.name(each), at(axis)) for each in node.args[0]
    ]
    return writer.emit("Concat", *names, axis=axis)


@reads("Split", since=2, folds=True)
def split(
    call: Call,
    input: Operand,
    split: Ints | None = None,
    *,
    axis: int,
    num_outputs: int | None = None,
) -> Results:
    """Split an axis into given or equal sizes."""
    whole, count = input.shape[axis_of(axis, input.ndim)], len(call.outputs)
    if isinstance(whole, Dim):
        raise ShapeError(f"the size {whole} has to be known; export a fixed one")
    if split is None:
        each = -(-whole // count)
        split = (*[each] * (count - 1), whole - each * (count - 1))
        if (call.version >= 18) != (num_outputs == count) or (
            call.version < 18 and whole % count
        ):
            raise ShapeError(f"{whole} elements in {count} parts, {num_outputs} asked")
    elif num_outputs is not None or len(split) != count:
        raise ShapeError(f"extents {split} of {count} parts, {num_outputs} asked")
    if min(split) < 0 or sum(split) != whole:
        raise ShapeError(f"parts of {split} elements, where there are {whole}")
    if isinstance(input, Value):
        return nn.split(input, list(split), axis)
    ends = np.cumsum((0, *split))
    return tuple(sliced(input, axis, slice(a, b)) for a, b in pairwise(ends))


def axis_of(axis: int, rank: int) -> int:
    """A non-negative axis; ShapeError if there is no such axis."""
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} of an array with {rank} dimensions")
    return int(axis % rank)


def sliced(x: Operand, axis: int, index: int | slice) -> Operand:
    """Index one axis of an array."""
    return x[(*[slice(None)] * axis_of(axis, x.ndim), index)]


@writes("nn.split")
def write_split(writer: Writer, node: Node) -> list[str]:
    """Split an array."""
    x, axis = node.args[0], argument(node, 2, "axis", 0)
    sizes = [part.shape[axis % x.ndim] for part in node.results]
    if any(isinstance(size, Dim) for size in sizes):
        raise GraphError(f"{node.place}: ONNX export needs parts of static sizes")
    return writer.emit_all(
        "Split", writer.name(x), writer.whole(*sizes), results=len(sizes), axis=axis
    )


@reads("Gather", folds=True)
def gather(
    call: Call, data: Operand | Key | None, indices: Operand, *, axis: int
) -> Results:
    """Gather along an axis; negative indices count from the end."""
    if data is None:  # a key, in inference
        return None
    if isinstance(data, Key):
        return data[int(call.known(indices, "indices"))]
    if not isinstance(indices, Value):
        if not isinstance(data, Value):
            row = data.size // max(data.shape[axis_of(axis, data.ndim)], 1)
            checked_size((indices.size, row), data.itemsize)
            return folded(np.take, data, indices, axis=axis)
        if not indices.ndim:
            return sliced(data, axis, int(indices))
    order = list(range(data.ndim))
    order.insert(0, order.pop(axis_of(axis, data.ndim)))
    rows = to_value(_transpose(data, order) if axis % data.ndim else data)
    if not call.program.note:  # files of ours have no negative indices
        indices = counted_from_front(indices, rows.shape[0])
    taken = _rows(rows, to_value(indices))
    if not axis % data.ndim:
        return taken
    count, at = indices.ndim, axis % data.ndim
    back = [*range(count, count + at), *range(count), *range(count + at, taken.ndim)]
    return nn.transpose(taken, back)


def counted_from_front(indices: Operand, size: Extent) -> Operand:
    """Non-negative indices; of a symbolic size, they must be non-negative already."""
    if isinstance(size, Dim):
        return indices  # the kernel rejects negative ones
    return where(
        foldable(math.less)(indices, 0), foldable(math.add)(indices, size), indices
    )


def _rows(table: Tensor, indices: Tensor) -> Tensor:
    """Rows of a table of any rank."""
    flat, shape = table, (*indices.shape, *table.shape[1:])
    if table.ndim != 2:
        flat = nn.reshape(table, (table.shape[0], 1 if table.ndim == 1 else -1))
    made: Tensor = nn.embedding(indices, flat)
    return made if table.ndim == 2 else made.reshape(shape)


@writes("nn.embedding")
def write_embedding(writer: Writer, node: Node) -> str:
    """Rows of a table."""
    ids, table = node.args[:2]
    return writer.emit("Gather", writer.name(table), writer.name(ids), axis=0)


def taken_along(call: Call, x: Tensor, axis: int, at: np.ndarray) -> Tensor:
    """The elements at known positions along an axis."""
    made = gather(call, x, at, axis=axis)
    assert isinstance(made, Tensor)
    return made


@reads("Pad", since=2)
def pad(
    call: Call,
    data: Tensor,
    pads: Ints,
    value: Number | None = None,
    axes: Ints | None = None,
    *,
    mode: str,
) -> Results:
    """Padding by a constant, or by what is inside; negative amounts crop."""
    if mode not in {"constant", "edge", "reflect", "wrap"}:
        raise GraphError(f"attribute mode={mode!r} is not supported")
    over = (
        range(data.ndim)
        if axes is None
        else [axis_of(axis, data.ndim) for axis in axes]
    )
    count = len(over)
    if len(pads) != 2 * count or len(set(over)) < count:
        raise ShapeError(f"pads {pads} of axes {tuple(over)}")
    around, cut = [(0, 0)] * data.ndim, [slice(None)] * data.ndim
    for axis, low, high in zip(over, pads[:count], pads[count:], strict=True):
        around[axis] = max(low, 0), max(high, 0)
        cut[axis] = slice(max(-low, 0), min(high, 0) or None)
        size = data.shape[axis]
        if isinstance(size, int) and size + min(low, 0) + min(high, 0) < 0:
            raise ShapeError(f"pads {pads} crop more than {data.shape} has")
    y = data[tuple(cut)]
    if mode == "constant":
        return nn.pad(y, tuple(around), value)
    for axis, ends in enumerate(around):
        size = y.shape[axis]
        if ends == (0, 0):
            continue
        if isinstance(size, Dim) or not size:
            raise ShapeError(f"pads {pads} with mode={mode!r} of {data.shape}")
        checked_size((size, *ends), 8)
        inside: np.ndarray = np.arange(size)
        y = taken_along(call, y, axis, np.pad(inside, ends, mode))  # type: ignore[call-overload]
    return y


@writes("nn.pad")
def write_pad(writer: Writer, node: Node) -> str:
    """Padding; `circular` is newer than the version that is written."""
    x, pairs = node.args[0], argument(node, 1, "padding", None)
    value, mode = argument(node, 2, "value", None), node.kwargs.get("mode", "constant")
    if mode == "circular":
        raise GraphError(f"{node.place}: padding in mode {mode!r} is not written")
    ends = [low for low, _ in pairs] + [high for _, high in pairs]
    given = [writer.name(x), writer.whole(*ends)]
    if mode == "constant":
        given.append(writer.name(0 if value is None else value, x))
    mode = {"replicate": "edge"}.get(mode, mode)
    return writer.emit("Pad", *given, mode=mode)


@writes("nn.pad_grad")
def write_inside(writer: Writer, node: Node) -> str:
    """Crop the padding, as a slice."""
    dy, pairs = node.args[0], argument(node, 2, "padding", None)
    mode = node.kwargs.get("mode", "constant")
    if mode != "constant" or min(map(min, pairs), default=0) < 0:
        raise GraphError(
            f"{node.place}: ONNX is written for gradients of constant padding from 0 on"
        )
    cut = [axis for axis, pair in enumerate(pairs) if tuple(pair) != (0, 0)]
    starts = [pairs[axis][0] for axis in cut]
    ends = [node.results[0].shape[axis] + pairs[axis][0] for axis in cut]
    if any(isinstance(end, Dim) for end in ends):
        raise GraphError(f"{node.place}: ONNX is written for slices of known sizes")
    bounds = [writer.whole(*each) for each in (starts, ends, cut)]
    return writer.emit("Slice", writer.name(dy), *bounds)


@reads("Slice", folds=True)
def slices(
    data: Operand,
    starts: Sizes,
    ends: Sizes,
    axes: Ints | None = None,
    steps: Ints | None = None,
) -> Results:
    """Slice axes."""
    over = range(len(starts)) if axes is None else axes
    by = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(over) == len(by):
        raise ShapeError(f"starts {starts}, ends {ends}, axes {axes}, steps {steps}")
    cut = [slice(None)] * data.ndim
    for axis, low, high, step in zip(over, starts, ends, by, strict=True):
        at = axis_of(axis, data.ndim)
        if cut[at] != slice(None) or not step:
            raise ShapeError(f"axes {axes} in steps of {steps}")
        first, last = (-1, 1) if step > 0 else (1, -1)
        cut[at] = slice(_bound(low, first), _bound(high, last), step)
    if not isinstance(data, np.ndarray):
        return data[tuple(cut)]
    if any(isinstance(n, Dim) for each in cut for n in (each.start, each.stop)):
        raise ShapeError(f"constants from {starts} to {ends}; export with fixed sizes")
    return tidy(data[tuple(cut)])


def _bound(number: Extent, side: int) -> Extent | None:
    """A bound; None if it is beyond any array on this side."""
    if isinstance(number, Dim):
        return number
    return None if number * side >= _FARTHEST else number


@writes("nn.slice")
def write_slice(writer: Writer, node: Node) -> str:
    """Slice dimensions."""
    x = node.args[0]
    begin, end, step = (
        _spread(argument(node, at, name, None), x.ndim)
        for at, name in enumerate(("begin", "end", "step"), 1)
    )
    bounds = [
        (axis, *_bounds(node, low, high, by))
        for axis, (low, high, by) in enumerate(zip(begin, end, step, strict=True))
        if (low, high, by) != (None, None, None)
    ]
    if not bounds:
        return writer.emit("Identity", writer.name(x))
    axes, starts, ends, steps = (
        writer.whole(*each) for each in zip(*bounds, strict=True)
    )
    return writer.emit("Slice", writer.name(x), starts, ends, axes, steps)


def _spread(
    given: Extent | Sequence[Extent | None] | None, rank: int
) -> tuple[Extent | None, ...]:
    """A bound for each dimension."""
    known = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    return known + (None,) * (rank - len(known))


def _bounds(
    node: Node, low: Extent | None, high: Extent | None, by: Extent | None
) -> tuple[int, int, int]:
    """ONNX's start, end and step."""
    if isinstance(low, Dim) or isinstance(high, Dim) or isinstance(by, Dim):
        raise GraphError(f"{node.place}: ONNX export needs slices of static bounds")
    step = 1 if by is None else by
    first, last = (0, _LAST) if step > 0 else (_LAST, _FIRST)
    return (first if low is None else low), (last if high is None else high), step


@writes("nn.slice_grad")
def write_slice_grad(writer: Writer, node: Node) -> str:
    """Zero padding around a slice's gradient."""
    dy, x = node.args[:2]
    begin, end, step = (
        _spread(argument(node, at, name, None), x.ndim)
        for at, name in enumerate(("begin", "end", "step"), 2)
    )
    if any(by not in {None, 1} for by in step):
        raise GraphError(
            f"{node.place}: ONNX export supports slice gradients of step 1 only"
        )
    pairs = [
        (0, 0) if low is high is None else _around(node, low, high, extent)
        for low, high, extent in zip(begin, end, x.shape, strict=True)
    ]
    ends = [low for low, _ in pairs] + [high for _, high in pairs]
    return writer.emit("Pad", writer.name(dy), writer.whole(*ends))


def _around(
    node: Node, low: Extent | None, high: Extent | None, extent: Extent
) -> tuple[int, int]:
    """The numbers of positions before and after a slice."""
    if isinstance(extent, Dim) or isinstance(low, Dim) or isinstance(high, Dim):
        raise GraphError(f"{node.place}: ONNX is written for slices of known sizes")
    taken = range(extent)[low:high]
    return taken.start, extent - len(taken) - taken.start
