"""NumPy indexing of symbolic tensors: slices, positions, new dimensions.

A slice is `nn.slice`; removed and new dimensions are an `nn.reshape` after it. An
integer index array is `nn.embedding`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from types import EllipsisType
from typing import Any, SupportsIndex, TypeAlias

import numpy as np

from tensorlang.errors import ArgumentError
from tensorlang.graph.networks.leaves import constant
from tensorlang.graph.scopes import call_site
from tensorlang.graph.specs import Dim, Extent
from tensorlang.graph.values import Tensor, Value
from tensorlang.ops import nn
from tensorlang.ops.calls.tensors import MOST_ELEMENTS

# begin, end and step along a dimension, as `nn.slice` takes them
Bound: TypeAlias = Extent | None
Bounds: TypeAlias = tuple[Bound, Bound, Bound]
# the index of one dimension; an array selects rows
Place: TypeAlias = SupportsIndex | slice | EllipsisType | None
Part: TypeAlias = Place | Value | np.ndarray | list[int]
Index: TypeAlias = Part | tuple[Part, ...]
_WHOLE: Bounds = (None, None, None)


def indexed(x: Tensor, index: Index) -> Tensor:
    """The result of `x[index]`; ArgumentError if the index does not fit the shape."""
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
    """x[0], x[1], ..., for unpacking; TypeError if their number is not known."""
    if not x.shape or not isinstance(x.shape[0], int):
        raise TypeError(
            f"{call_site()}: {x.spec}: the number of rows is symbolic, so they cannot "
            "be iterated"
        )
    return (indexed(x, at) for at in range(x.shape[0]))


def _ranked(part: object) -> bool:
    """Whether it is an index array; a NumPy scalar is a position."""
    return not isinstance(part, np.ndarray) or part.ndim > 0


def _wrong(x: Tensor, index: object, why: str) -> ArgumentError:
    return ArgumentError(f"{call_site()}: {x.spec} indexed by {index!r:.80}: {why}")


def _spelled_out(x: Tensor, index: Index, parts: list[Part]) -> list[Part]:
    """The index, a part for each dimension; ArgumentError if it has too many."""
    said = sum(part is not None and part is not ... for part in parts)
    dots = sum(part is ... for part in parts)
    if said > x.ndim:
        raise _wrong(x, index, f"there are {x.ndim} dimensions, not {said}")
    if dots > 1:
        raise _wrong(x, index, "'...' may appear only once")
    rest = [slice(None)] * (x.ndim - said)
    if not dots:
        return [*parts, *rest]
    at = next(n for n, part in enumerate(parts) if part is ...)
    return [*parts[:at], *rest, *parts[at + 1 :]]


def _bounds(x: Tensor, part: Part, axis: int) -> Bounds:
    """The bounds that an index gives for a dimension.

    Raises:
        ArgumentError: not a valid index.
    """
    extent = x.shape[axis]
    if isinstance(part, slice):
        low, high, by = (
            _number(x, each) for each in (part.start, part.stop, part.step)
        )
        if by == 0:
            raise _wrong(x, part, "a step must not be 0")
        return _tidy(low, high, by, extent)
    at = _number(x, part)
    if at is None or isinstance(at, Dim):
        raise _wrong(x, part, "an index is an integer")
    if isinstance(extent, int) and not -extent <= at < extent:
        raise _wrong(x, part, f"dimension {axis} has size {extent}")
    return (at, None if at == -1 else at + 1, None)


def _number(x: Tensor, value: Any) -> Extent | None:
    """An integer, a named size, or None; ArgumentError if anything else."""
    if value is None or isinstance(value, Dim):
        return value
    if isinstance(value, (bool, np.bool_)):
        raise _wrong(x, value, "True and False are not indices; see math.where")
    try:
        return operator.index(value)
    except TypeError:
        raise _wrong(
            x, value, "an index consists of integers, slices, None and '...'"
        ) from None


def _tidy(low: Bound, high: Bound, by: Bound, extent: Extent) -> Bounds:
    """Bounds as numbers where possible, None where they have no effect."""
    low, high = (_from_end(each, extent) for each in (low, high))
    by = None if by == 1 else by
    if by is None:
        low = None if low == 0 else low
        high = None if high == extent or _beyond(high, extent) else high
    return low, high, by


def _from_end(bound: Bound, extent: Extent) -> Bound:
    """A bound given relative to the dimension's size, counted from its end."""
    away = bound - extent if isinstance(bound, Dim) else 0
    return away if isinstance(away, int) and away < 0 else bound


def _beyond(high: Bound, extent: Extent) -> bool:
    most = extent if isinstance(extent, int) else MOST_ELEMENTS
    return isinstance(high, int) and high >= most


def _sliced(x: Tensor, bounds: Sequence[Bounds]) -> Tensor:
    """The slice of these bounds; the tensor itself if it covers everything."""
    said = [n for n, each in enumerate(bounds) if each != _WHOLE]
    if not said:
        return x
    begin, end, step = zip(*bounds[: said[-1] + 1], strict=True)
    steps = (step,) if any(by is not None for by in step) else ()
    made: Tensor = nn.slice(x, begin, end, *steps)
    return made


def _shape(shape: Sequence[Extent], parts: Sequence[Part]) -> Iterator[Extent]:
    """The shape of a slice after removing and adding dimensions."""
    extents = iter(shape)
    for part in parts:
        if part is None:
            yield 1
            continue
        extent = next(extents)
        if isinstance(part, slice):
            yield extent


def _rows(x: Tensor, index: Index, parts: Sequence[Part]) -> Tensor:
    """The rows selected by an index array; ArgumentError if not a valid row index."""
    if len(parts) > 1:
        raise _wrong(x, index, "an index array must be the only index; it selects rows")
    if not x.ndim:
        raise _wrong(x, index, "a scalar has no rows")
    ids = _numbers(x, index, parts[0])
    table = x if x.ndim == 2 else x.reshape((x.shape[0], _product(x.shape[1:])))
    taken: Tensor = nn.embedding(ids, table)
    return taken if x.ndim == 2 else taken.reshape((*ids.shape, *x.shape[1:]))


def _numbers(x: Tensor, index: Index, given: Part) -> Value:
    """Row indices as a tensor; ArgumentError if not integers."""
    if isinstance(given, Value):
        kind = str(getattr(given.spec, "dtype", given.spec))
    else:
        given = np.asarray(given)
        kind = given.dtype.name
    if kind == "bool":
        raise _wrong(
            x, index, "the size of a boolean mask depends on data; see math.where"
        )
    if not kind.startswith(("i", "u")):
        raise _wrong(x, index, "indices are integers")
    return given if isinstance(given, Value) else constant(_counted(x, index, given))


def _counted(x: Tensor, index: Index, ids: np.ndarray) -> np.ndarray:
    """Row indices with negative ones counted from the end.

    Raises:
        ArgumentError: an index is out of range.
    """
    extent = x.shape[0]
    if not isinstance(extent, int):
        if ids.size and ids.min() < 0:
            raise _wrong(
                x, index, f"the size {extent} is symbolic: use non-negative indices"
            )
        return ids.astype(np.int64)
    if ids.size and not -extent <= ids.min() <= ids.max() < extent:
        raise _wrong(x, index, f"there are {extent} rows")
    return np.where(ids < 0, ids + extent, ids).astype(np.int64)


def _product(shape: Sequence[Extent]) -> Extent:
    made: Extent = 1
    for extent in shape:
        made = made * extent
    return made
