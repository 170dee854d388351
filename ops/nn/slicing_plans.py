"""Plans of slices: the fewest dimensions that say the same.

A dimension that is taken whole is one with the dimension before it, and one of which a
single place is taken is one with the dimension behind it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.ops.tensors import Plan, Shape

if TYPE_CHECKING:
    from tensorlang.ops.tensors import Names
    from tensorlang.workload import Workload

ALL: Final = -1  # the size of a dimension that is taken whole
# first place, number of places, and step along a dimension
Cut: TypeAlias = tuple[int, int, int]


def sliced(
    shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: dict[str, Any]
) -> Plan:
    """An array, of which some places are taken.

    Raises:
        ArgumentError, ShapeError: there are no such places.
    """
    (shape,) = shapes
    cuts = _cuts("nn.slice", shape, asked)
    result = tuple(count for _, count, _ in cuts)
    extents, merged = _merged(shape, cuts)
    return Plan((extents,), dtypes, (result,), _attributes(extents, merged))


def put_back(
    shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: dict[str, Any]
) -> Plan:
    """What was taken, and the array that it goes back to.

    Raises:
        ArgumentError, ShapeError: it is no slice of such an array.
    """
    (given,) = shapes
    open_ = zip(asked["shape"], given, strict=False)
    shape = tuple(n if extent == ALL else extent for extent, n in open_)
    cuts = _cuts("nn.slice_grad", shape, asked)
    taken = tuple(count for _, count, _ in cuts)
    if taken != given:
        raise ShapeError(
            f"nn.slice_grad: dy of shape {given} is no such slice of x of shape "
            f"{shape}, which has shape {taken}"
        )
    extents, merged = _merged(shape, cuts)
    attributes = _attributes(extents, merged)
    whole = [at == 0 and size == ALL for at, size in enumerate(attributes["size"])]
    attributes["shape"] = tuple(
        ALL if free else extent for free, extent in zip(whole, extents, strict=True)
    )
    counts = tuple(count for _, count, _ in merged)
    return Plan((counts,), dtypes, (shape,), attributes)


def sliced_names(workload: Workload) -> Names:
    """The first dimension, where it is taken whole: a batch."""
    (shape,) = workload.shapes
    size = workload.named["size"]
    assert isinstance(size, tuple)
    return (("n" if size[0] == ALL else None, *[None] * (len(shape) - 1)),)


def cut(id: str, shape: Shape, begin: Any, end: Any, step: Any) -> dict[str, Any]:
    """Attributes of a slice that NumPy would write `x[begin:end:step, ...]`.

    Raises:
        ArgumentError: a bound is no whole number, or there are too many.
    """
    try:
        return _cut(id, shape, begin, end, step)
    except TypeError:  # a list cannot be remembered
        return _cut.__wrapped__(id, shape, begin, end, step)


@lru_cache(maxsize=1024)
def _cut(id: str, shape: Shape, begin: Any, end: Any, step: Any) -> dict[str, Any]:
    given = [
        _bounds(id, name, values, len(shape))
        for name, values in (("begin", begin), ("end", end), ("step", step))
    ]
    if 0 in given[2]:
        raise ArgumentError(f"{id}: a step goes on or back, it is not 0: {step!r}")
    ranges = [
        range(extent)[low:high:by]
        for extent, low, high, by in zip(shape, *given, strict=True)
    ]
    return {
        "begin": tuple(each.start for each in ranges),
        "size": tuple(map(len, ranges)),
        "step": tuple(each.step for each in ranges),
    }


def _bounds(id: str, name: str, values: Any, rank: int) -> tuple[int | None, ...]:
    """A bound for each dimension, None where it is left open."""
    made = tuple(values) if isinstance(values, (list, tuple)) else (values,)
    for value in made:
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        if not (whole or value is None):
            raise ArgumentError(
                f"{id}: {name} is a whole number or None for each dimension, not "
                f"{values!r:.80}"
            )
    if len(made) > rank and values is not None:
        raise ArgumentError(
            f"{id}: {name} has {len(made)} numbers for an array of {rank} dimensions"
        )
    known = tuple(None if value is None else int(value) for value in made[:rank])
    return known + (None,) * (rank - len(known))


def _cuts(id: str, shape: Shape, asked: dict[str, Any]) -> list[Cut]:
    """The places that are taken along each dimension.

    Raises:
        ArgumentError, ShapeError: there are no such places.
    """
    begin, size, step = (asked[name] for name in ("begin", "size", "step"))
    if not len(begin) == len(size) == len(step) == len(shape):
        raise ArgumentError(
            f"{id}: an array of {len(shape)} dimensions is sliced by begin, size and "
            f"step of as many, not {begin}, {size} and {step}"
        )
    cuts = zip(shape, begin, size, step, strict=True)
    return [placed(id, *each) for each in cuts]


def placed(id: str, extent: int, at: int, size: int, by: int) -> Cut:
    """A cut of a dimension, with its number of places.

    Raises:
        ShapeError: they are not within it.
    """
    count = extent if size == ALL else size
    last = at + (count - 1) * by
    inside = count == 0 or (0 <= at < extent and 0 <= last < extent)
    if not inside or count < 0 or not by:
        raise ShapeError(
            f"{id}: {count} places from {at} on by steps of {by} are not within a "
            f"dimension of {extent}"
        )
    return at, count, by


def _merged(shape: Shape, cuts: Sequence[Cut]) -> tuple[Shape, list[Cut]]:
    """Extents and cuts of the fewest dimensions."""
    if 0 in (count for _, count, _ in cuts):
        return (math.prod(shape),), [(0, 0, 1)]
    extents: list[int] = []
    made: list[Cut] = []
    for extent, (at, count, step) in zip(shape, cuts, strict=True):
        by = 1 if count == 1 else step
        if extent == 1 and made:
            continue
        if made and made[-1][1] == 1 < extents[-1]:
            extents[-1] *= extent
            made[-1] = (made[-1][0] * extent + at, count, by)
        elif made and (at, count, by) == (0, extent, 1) and made[-1][2] == 1:
            extents[-1] *= extent
            made[-1] = (made[-1][0] * extent, made[-1][1] * extent, 1)
        else:
            extents.append(extent)
            made.append((at, count, by))
    return tuple(extents) or (1,), made or [(0, 1, 1)]


def _attributes(extents: Shape, cuts: Sequence[Cut]) -> dict[str, Any]:
    pairs = list(zip(extents, cuts, strict=True))
    return {
        "begin": tuple(at for at, _, _ in cuts),
        "size": tuple(ALL if c == (0, n, 1) else c[1] for n, c in pairs),
        "step": tuple(by for _, _, by in cuts),
    }
