"""Elements and rows at positions that are data: Gather*, Scatter*, TopK, OneHot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final

import numpy as np

from tensorlang.errors import GraphError, ShapeError
from tensorlang.graph.specs import Dim, Extent
from tensorlang.graph.values import Tensor
from tensorlang.onnx.calls import Call, Operand, dtype_in
from tensorlang.onnx.folding import checked_size, foldable, to_value
from tensorlang.onnx.operators.data_movement import axis_of, counted_from_front, gather
from tensorlang.onnx.operators.elementwise import converted, where
from tensorlang.onnx.reading import Ints, Number, Read, Results, reads
from tensorlang.ops import math, nn

_OUTSIDE: Final = -(1 << 50)  # added to any other place, it stays outside
_REDUCTIONS: Final = ("none", "add", "mul", "max", "min")
_add, _multiply = foldable(math.add), foldable(math.multiply)


def known_shape(x: Operand) -> Ints:
    """A shape without symbolic sizes; ShapeError if it has one."""
    shape = tuple(n for n in x.shape if not isinstance(n, Dim))
    if len(shape) < x.ndim:
        raise ShapeError(f"the sizes of {x.shape} have to be known; export fixed ones")
    return shape


def taken(x: Tensor, places: Operand) -> Tensor:
    """The elements at places in the order of memory."""
    count: Extent = 1
    for extent in x.shape:
        count = count * extent
    table = nn.reshape(x, (count, 1))
    made: Tensor = nn.reshape(nn.embedding(to_value(places), table), places.shape)
    return made


def place(parts: Sequence[Operand], shape: Sequence[int]) -> Operand:
    """The place in memory of an index, given per dimension."""
    made: Operand = np.zeros((), np.int64)
    for at, part in enumerate(parts):
        size = prod(shape[at + 1 :])
        wide = converted(part, np.dtype(np.int64))
        made = _add(made, wide if size == 1 else _multiply(wide, np.array(size)))
    return made


def _index(given: Operand, size: int) -> Operand:
    """Indices counted from the front; far outside where they are outside."""
    indices = counted_from_front(converted(given, np.dtype(np.int64)), size)
    low = foldable(math.less)(indices, 0)
    high = foldable(math.greater_equal)(indices, size)
    outside = foldable(math.logical_or)(low, high)
    if isinstance(outside, np.ndarray) and outside.any():
        raise ShapeError(f"an index is out of range, where there are {size} elements")
    return where(outside, np.array(_OUTSIDE), indices)


def _beside(indices: Operand, shape: Ints, axis: int) -> Operand:
    """Places of elements at indices along an axis, and at their own along others."""
    own = known_shape(indices)
    at, rank = axis_of(axis, len(shape)), len(shape)
    fits = all(
        n <= m for k, (n, m) in enumerate(zip(own, shape, strict=False)) if k != at
    )
    if len(own) != rank or not fits:
        raise ShapeError(f"indices {own} along axis {axis} of {shape}")
    checked_size(own, 8)
    parts: list[Operand] = [
        np.arange(n).reshape(-1, *[1] * (rank - k - 1)) for k, n in enumerate(own)
    ]
    parts[at] = _index(indices, shape[at])
    return place(parts, shape)


@reads("GatherElements", folds=True)
def gather_elements(data: Operand, indices: Operand, *, axis: int) -> Results:
    """Elements at indices along an axis."""
    places = _beside(indices, known_shape(data), axis)
    return taken(to_value(data), to_value(places))


def _tuples(indices: Operand, shape: Sequence[int]) -> tuple[Operand, int]:
    """Numbers of the rows that index tuples stand for, and the tuples' length."""
    count = known_shape(indices)[-1] if indices.ndim else 0
    if not 0 < count <= len(shape):
        raise ShapeError(f"index tuples of {indices.shape} for {tuple(shape)}")
    parts = [_index(indices[..., n], shape[n]) for n in range(count)]
    return place(parts, shape[:count]), count


@reads("GatherND", folds=True)
def gather_nd(data: Operand, indices: Operand, *, batch_dims: int = 0) -> Results:
    """Rows at index tuples."""
    shape, own = known_shape(data), known_shape(indices)
    b = batch_dims
    if not 0 <= b < min(len(shape), len(own)) or own[:b] != shape[:b]:
        raise ShapeError(f"batch_dims={b} of {shape} and {own}")
    rows, count = _tuples(indices, shape[b:])
    grid = np.arange(prod(shape[:b])).reshape(*shape[:b], *[1] * (len(own) - 1 - b))
    size = prod(shape[b : b + count])
    places = _add(rows, grid * size) if b else rows
    rest = shape[b + count :]
    table = nn.reshape(to_value(data), (prod(shape[:b]) * size, prod(rest)))
    return nn.reshape(nn.embedding(to_value(places), table), (*own[:-1], *rest))


def _scattered(
    data: Operand, places: Operand, updates: Operand, width: int, how: str
) -> Tensor:
    """Rows of some width combined with updates."""
    if how not in _REDUCTIONS:
        raise GraphError(f"attribute reduction={how!r} is not supported")
    shape = known_shape(data)
    rows = prod(shape) // width if width else 0
    ids = to_value(places)
    table = nn.reshape(to_value(data), (rows, width))
    new = nn.reshape(to_value(updates), (*ids.shape, width))
    made: Tensor = nn.reshape(nn.scatter(ids, table, new, how), shape)
    return made


@reads("Scatter")
@reads("ScatterElements")
def scatter_elements(
    data: Operand,
    indices: Operand,
    updates: Operand,
    *,
    axis: int,
    reduction: str = "none",
) -> Results:
    """Elements at indices along an axis, replaced or combined."""
    if indices.shape != updates.shape:
        raise ShapeError(f"updates of {updates.shape} at indices of {indices.shape}")
    places = _beside(indices, known_shape(data), axis)
    return _scattered(data, places, updates, 1, reduction)


@reads("ScatterND")
def scatter_nd(
    data: Operand, indices: Operand, updates: Operand, *, reduction: str = "none"
) -> Results:
    """Rows at index tuples, replaced or combined."""
    shape = known_shape(data)
    rows, count = _tuples(indices, shape)
    if tuple(updates.shape) != (*indices.shape[:-1], *shape[count:]):
        raise ShapeError(f"updates of {updates.shape} at {indices.shape} of {shape}")
    return _scattered(data, rows, updates, prod(shape[count:]), reduction)


@reads("TensorScatter")
def tensor_scatter(
    past_cache: Operand,
    update: Operand,
    write_indices: Operand | None = None,
    *,
    axis: int,
    mode: str,
) -> Results:
    """A cache with a stretch along an axis replaced, at a place per batch."""
    shape, own = known_shape(past_cache), known_shape(update)
    at = axis_of(axis, len(shape))
    if mode not in {"linear", "circular"} or not at:
        raise GraphError(f"attribute mode={mode!r} at axis {axis} is not supported")
    parts: list[Operand] = [
        np.arange(n).reshape(-1, *[1] * (len(own) - k - 1)) for k, n in enumerate(own)
    ]
    if write_indices is not None:
        begin = foldable(nn.reshape)(write_indices, (-1, *[1] * (len(own) - 1)))
        parts[at] = _add(begin, parts[at])
    if mode == "circular":
        parts[at] = foldable(math.remainder)(parts[at], np.array(shape[at]))
    return _scattered(past_cache, place(parts, shape), update, 1, "none")


@reads("TopK")
def top(
    x: Tensor, k: Number, *, axis: int, largest: bool = True, sorted: bool = True
) -> Results:
    """The largest or smallest elements along an axis, in order, and their indices."""
    del sorted  # in any order, which may be this
    at = axis_of(axis, x.ndim)
    size = x.shape[at]
    if not isinstance(size, Dim) and not 0 <= k <= size:
        raise ShapeError(f"{k} of {size} elements")
    order = math.argsort(x, at, largest)[(*[slice(None)] * at, slice(0, int(k)))]
    return gather_elements(x, order, axis=at), order


@reads("OneHot")
def one_hot(indices: Operand, depth: Number, values: Operand, *, axis: int) -> Results:
    """Vectors that have one value at an index, and another elsewhere."""
    rank, count = indices.ndim + 1, int(depth)
    at = axis_of(axis, rank)
    checked_size((count,), 8)
    shape = list(indices.shape)
    shape.insert(at, 1)
    wide = nn.reshape(math.cast(to_value(indices), "i64"), tuple(shape))
    wide = where(math.less(wide, 0), math.add(wide, count), wide)
    line = np.arange(count).reshape(-1, *[1] * (rank - at - 1))
    off, on = (gather_one(values, n) for n in (0, 1))
    return where(math.equal(wide, line), on, off)


def gather_one(values: Operand, n: int) -> Operand:
    """One element of a vector, as a scalar."""
    if values.shape != (2,):
        raise ShapeError(f"values of shape {values.shape}, not an off and an on value")
    return values[n]


@reads("Compress")
def compress(
    call: Call, input: Operand, condition: Ints, *, axis: int | None = None
) -> Results:
    """The slices along an axis for which a condition holds."""
    x = to_value(input)
    flat = nn.reshape(x, (-1,)) if axis is None else x
    return gather(call, flat, np.flatnonzero(condition), axis=axis or 0)


@reads("ReverseSequence")
def reverse_sequence(
    input: Operand, sequence_lens: Operand, *, batch_axis: int, time_axis: int
) -> Results:
    """Reverse the beginning of each sequence of a batch."""
    shape = known_shape(input)
    parts: list[Operand] = [
        np.arange(n).reshape(-1, *[1] * (len(shape) - k - 1))
        for k, n in enumerate(shape)
    ]
    across = [1] * len(shape)
    across[batch_axis] = -1
    lengths = foldable(nn.reshape)(sequence_lens, tuple(across))
    time = parts[time_axis]
    back = foldable(math.subtract)(foldable(math.subtract)(lengths, np.array(1)), time)
    parts[time_axis] = where(foldable(math.less)(time, lengths), back, time)
    return taken(to_value(input), place(parts, shape))


@reads("Hardmax")
def hardmax(call: Call, input: Tensor, *, axis: int) -> Results:
    """1 at the first maximum along an axis, 0 elsewhere."""
    if call.version < 13 and axis != input.ndim - 1:
        raise GraphError(f"axis {axis} before version 13 is not supported")
    first = math.argmax(input, axis, True)
    shape = [1] * input.ndim
    shape[axis] = -1
    line = np.arange(known_shape(input)[axis]).reshape(shape)
    return math.cast(math.equal(first, line), dtype_in(input).name)


def _scan(along: Callable[[Tensor, int], Tensor], none: int) -> Read:
    def read(x: Tensor, axis: Number, *, exclusive: bool, reverse: bool) -> Results:
        """A scan, from the end if `reverse`, without the element itself."""
        at = axis_of(int(axis), x.ndim)
        back = (*[slice(None)] * at, slice(None, None, -1))
        made = along(x[back] if reverse else x, at)
        made = _moved(made, at, 1, none) if exclusive else made
        return made[back] if reverse else made

    return read


def _moved(x: Tensor, axis: int, steps: int, none: int) -> Tensor:
    """Elements moved along an axis, after as many of a value."""
    before = tuple((steps, 0) if k == axis else (0, 0) for k in range(x.ndim))
    made: Tensor = nn.pad(x, before, none)[(*[slice(None)] * axis, slice(None, -steps))]
    return made


def _sums(x: Tensor, axis: int) -> Tensor:
    made: Tensor = math.cast(math.cumsum(x, axis), x.spec.dtype)
    return made


def _products(x: Tensor, axis: int) -> Tensor:
    """Cumulative products, by doubling (Hillis and Steele, 1986)."""
    steps, size = 1, known_shape(x)[axis]
    while steps < size:
        x = math.multiply(x, _moved(x, axis, steps, 1))
        steps *= 2
    return x


reads("CumSum")(_scan(_sums, 0))
reads("CumProd")(_scan(_products, 1))
