"""`x[...]` of symbolic tensors, as NumPy takes it: slices, places, new dimensions.

A slice is `nn.slice`; a dimension that goes or comes is `nn.reshape` behind it. Rows
that are named by an array of whole numbers are `nn.embedding`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from types import EllipsisType
from typing import Any, SupportsIndex, TypeAlias

import numpy as np

from tensorlang.errors import ArgumentError
from tensorlang.graph.leaves import constant
from tensorlang.graph.scopes import outside
from tensorlang.graph.specs import Dim, Extent
from tensorlang.graph.values import Tensor, Value
from tensorlang.ops import nn
from tensorlang.ops.tensors import MOST_ELEMENTS

# begin, end and step along a dimension, as `nn.slice` takes them
Bound: TypeAlias = Extent | None
Bounds: TypeAlias = tuple[Bound, Bound, Bound]
# of one dimension; an array, of rows
Place: TypeAlias = SupportsIndex | slice | EllipsisType | None
Part: TypeAlias = Place | Value | np.ndarray | list[int]
Index: TypeAlias = Part | tuple[Part, ...]
_WHOLE: Bounds = (None, None, None)


def indexed(x: Tensor, index: Index) -> Tensor:
    """What `x[index]` stands for.

    Raises:
        ArgumentError: nothing of this shape has such an index.
    """
    parts = list(index) if isinstance(index, tuple) else [index]
    if any(
        isinstance(part, (Value, np.ndarray, list)) and _ranked(part) for part in parts
    ):
        return _rows(x, index, parts)
    parts = _spelled_out(x, index, parts)
    axes = (axis for axis in range(x.ndim))
    bounds = [_bounds(x, part, next(axes)) for part in parts if part is not None]
    taken = _sliced(x, bounds)
    shape = tuple(_shape(taken.shape, parts))
    return taken if shape == taken.shape else taken.reshape(shape)


def rows(x: Tensor) -> Iterator[Tensor]:
    """What unpacking `x`, or a loop over it, gives: x[0], x[1], ...

    Raises:
        TypeError: there is no number of them.
    """
    if not x.shape or not isinstance(x.shape[0], int):
        raise TypeError(
            f"{outside()}: {x.spec} has no known number of rows to go through"
        )
    return (indexed(x, at) for at in range(x.shape[0]))


def _ranked(part: object) -> bool:
    """Whether it is an array that names places; a number of NumPy is one place."""
    return not isinstance(part, np.ndarray) or part.ndim > 0


def _wrong(x: Tensor, index: object, why: str) -> ArgumentError:
    return ArgumentError(f"{outside()}: {x.spec} indexed by {index!r:.80}: {why}")


def _spelled_out(x: Tensor, index: Index, parts: list[Part]) -> list[Part]:
    """An index that says something of each dimension.

    Raises:
        ArgumentError: it says something of more.
    """
    said = sum(part is not None and part is not ... for part in parts)
    dots = sum(part is ... for part in parts)
    if said > x.ndim:
        raise _wrong(x, index, f"there are {x.ndim} dimensions, not {said}")
    if dots > 1:
        raise _wrong(x, index, "'...' stands once")
    rest = [slice(None)] * (x.ndim - said)
    if not dots:
        return [*parts, *rest]
    at = next(n for n, part in enumerate(parts) if part is ...)
    return [*parts[:at], *rest, *parts[at + 1 :]]


def _bounds(x: Tensor, part: Part, axis: int) -> Bounds:
    """The bounds that an index says of a dimension.

    Raises:
        ArgumentError: it says none.
    """
    extent = x.shape[axis]
    if isinstance(part, slice):
        low, high, by = (
            _number(x, each) for each in (part.start, part.stop, part.step)
        )
        if by == 0:
            raise _wrong(x, part, "a step goes on or back, it is not 0")
        return _tidy(low, high, by, extent)
    at = _number(x, part)
    if at is None or isinstance(at, Dim):
        raise _wrong(x, part, "a place is a whole number")
    if isinstance(extent, int) and not -extent <= at < extent:
        raise _wrong(x, part, f"dimension {axis} has {extent} places")
    return (at, None if at == -1 else at + 1, None)


def _number(x: Tensor, value: Any) -> Extent | None:
    """A whole number, a size with a name, or None.

    Raises:
        ArgumentError: it is something else.
    """
    if value is None or isinstance(value, Dim):
        return value
    if isinstance(value, (bool, np.bool_)):
        raise _wrong(x, value, "True and False are no places; see math.where")
    try:
        return operator.index(value)
    except TypeError:
        raise _wrong(
            x, value, "an index is made of whole numbers, slices, None and '...'"
        ) from None


def _tidy(low: Bound, high: Bound, by: Bound, extent: Extent) -> Bounds:
    """Bounds as numbers where they can be, and None where they say nothing."""
    low, high = (_from_end(each, extent) for each in (low, high))
    by = None if by == 1 else by
    if by is None:
        low = None if low == 0 else low
        high = None if high == extent or _beyond(high, extent) else high
    return low, high, by


def _from_end(bound: Bound, extent: Extent) -> Bound:
    """A bound that is said by the size of the dimension, counted from its end."""
    away = bound - extent if isinstance(bound, Dim) else 0
    return away if isinstance(away, int) and away < 0 else bound


def _beyond(high: Bound, extent: Extent) -> bool:
    most = extent if isinstance(extent, int) else MOST_ELEMENTS
    return isinstance(high, int) and high >= most


def _sliced(x: Tensor, bounds: Sequence[Bounds]) -> Tensor:
    """The slice of these bounds; the tensor itself where it is all of it."""
    said = [n for n, each in enumerate(bounds) if each != _WHOLE]
    if not said:
        return x
    begin, end, step = zip(*bounds[: said[-1] + 1], strict=True)
    steps = (step,) if any(by is not None for by in step) else ()
    made: Tensor = nn.slice(x, begin, end, *steps)
    return made


def _shape(shape: Sequence[Extent], parts: Sequence[Part]) -> Iterator[Extent]:
    """The shape of a slice without the dimensions that go, with those that come."""
    extents = iter(shape)
    for part in parts:
        if part is None:
            yield 1
            continue
        extent = next(extents)
        if isinstance(part, slice):
            yield extent


def _rows(x: Tensor, index: Index, parts: Sequence[Part]) -> Tensor:
    """The rows that an array names.

    Raises:
        ArgumentError: it names something else.
    """
    if len(parts) > 1:
        raise _wrong(x, index, "an array of places stands alone, and names rows")
    if not x.ndim:
        raise _wrong(x, index, "a number has no rows")
    ids = _numbers(x, index, parts[0])
    table = x if x.ndim == 2 else x.reshape((x.shape[0], _product(x.shape[1:])))
    taken: Tensor = nn.embedding(ids, table)
    return taken if x.ndim == 2 else taken.reshape((*ids.shape, *x.shape[1:]))


def _numbers(x: Tensor, index: Index, given: Part) -> Value:
    """Numbers of rows as a tensor.

    Raises:
        ArgumentError: they are none.
    """
    if isinstance(given, Value):
        kind = str(getattr(given.spec, "dtype", given.spec))
    else:
        given = np.asarray(given)
        kind = given.dtype.name
    if kind == "bool":
        raise _wrong(x, index, "how many places a mask has, data say; see math.where")
    if not kind.startswith(("i", "u")):
        raise _wrong(x, index, "places are whole numbers")
    return given if isinstance(given, Value) else constant(_counted(x, index, given))


def _counted(x: Tensor, index: Index, ids: np.ndarray) -> np.ndarray:
    """Numbers of rows, each counted from the first one.

    Raises:
        ArgumentError: one of them is none of a row.
    """
    extent = x.shape[0]
    if not isinstance(extent, int):
        if ids.size and ids.min() < 0:
            raise _wrong(x, index, f"the size {extent} is open: count from the front")
        return ids.astype(np.int64)
    if ids.size and not -extent <= ids.min() <= ids.max() < extent:
        raise _wrong(x, index, f"there are {extent} rows")
    return np.where(ids < 0, ids + extent, ids).astype(np.int64)


def _product(shape: Sequence[Extent]) -> Extent:
    made: Extent = 1
    for extent in shape:
        made = made * extent
    return made
