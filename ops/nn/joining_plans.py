"""Plans of padding and joining: the fewest dimensions that say the same.

A dimension that nothing is added to is one with the dimension before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.ops.tensors import Plan, Shape, axis_of, of_one_type

if TYPE_CHECKING:
    from tensorlang.ops.tensors import Names
    from tensorlang.workload import Workload


def padded(
    shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: dict[str, Any]
) -> Plan:
    """The array with room for its padding.

    Raises:
        ArgumentError: there is not a pair for each dimension.
    """
    (shape,) = shapes
    low, high = _sides("nn.pad", asked["padding"], len(shape))
    result = tuple(map(sum, zip(shape, low, high, strict=True)))
    extents, pairs = _merged(shape, low, high)
    return Plan((extents,), dtypes, (result,), {"padding": pairs})


def cropped(
    shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: dict[str, Any]
) -> Plan:
    """A padded array, of which the inside is taken.

    Raises:
        ArgumentError: there is not a pair for each dimension.
        ShapeError: there is more padding than array.
    """
    (shape,) = shapes
    low, high = _sides("nn.pad_grad", asked["padding"], len(shape))
    inside = tuple(n - a - b for n, a, b in zip(shape, low, high, strict=True))
    if min(inside, default=0) < 0 or asked.get("inside", inside) != inside:
        raise ShapeError(
            f"nn.pad_grad: dy of shape {shape} is no result of padding x"
            f"{' of shape ' + str(asked['inside']) if 'inside' in asked else ''} by "
            f"{tuple(zip(low, high, strict=True))}"
        )
    extents, pairs = _merged(inside, low, high)
    whole = tuple(n + pairs[2 * at] + pairs[2 * at + 1] for at, n in enumerate(extents))
    return Plan((whole,), dtypes, (inside,), {"padding": pairs})


def padded_names(workload: Workload) -> Names:
    """The dimensions that are not padded; and a dimension that is alone."""
    (shape,) = workload.shapes
    pairs = workload.named["padding"]
    assert isinstance(pairs, tuple)
    free = [
        len(shape) == 1 or pairs[2 * n : 2 * n + 2] == (0, 0) for n in range(len(shape))
    ]
    return (tuple(f"n{n}" if is_free else None for n, is_free in enumerate(free)),)


def _sides(id: str, padding: tuple[int, ...], rank: int) -> tuple[Shape, Shape]:
    """What comes before each dimension, and what behind."""
    low, high = padding[::2], padding[1::2]
    if len(low) != rank:
        raise ArgumentError(
            f"{id}: {len(low)} pairs of padding for an array of {rank} dimensions; "
            "give one for each"
        )
    return low, high


def _merged(shape: Shape, low: Shape, high: Shape) -> tuple[Shape, tuple[int, ...]]:
    """Extents and pairs, with what is not padded taken into the dimension before."""
    made: list[list[int]] = []
    for extent, a, b in zip(shape, low, high, strict=True):
        if made and a == b == 0:
            made[-1] = [n * extent for n in made[-1]]
        else:
            made.append([extent, a, b])
    made = made or [[1, 0, 0]]
    pairs = tuple(n for _, a, b in made for n in (a, b))
    return tuple(extent for extent, _, _ in made), pairs


def joined(
    shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: dict[str, Any]
) -> Plan:
    """Rows that follow each other; one row each, where nothing lies before the axis.

    Raises:
        DTypeError, ShapeError, ArgumentError: the arrays cannot be joined.
    """
    of_one_type("nn.concatenate", dtypes)
    first = shapes[0]
    axis = axis_of("nn.concatenate", asked["axis"], len(first))
    for shape in shapes:
        if _without(shape, axis) != _without(first, axis) or len(shape) != len(first):
            raise ShapeError(
                f"nn.concatenate: shapes {first} and {shape} differ beside axis {axis}"
            )
    total = sum(shape[axis] for shape in shapes)
    result = (*first[:axis], total, *first[axis + 1 :])
    rows = math.prod(first[:axis])
    widths = [math.prod(shape[axis:]) for shape in shapes]
    flat = tuple((width,) if rows == 1 else (rows, width) for width in widths)
    return Plan(flat, dtypes, (result,), {"axis": len(flat[0]) - 1})


def joined_names(workload: Workload) -> Names:
    """The number of rows; where there is one, the lengths."""
    if len(workload.shapes[0]) == 1:
        return tuple((f"n{at}",) for at in range(len(workload.shapes)))
    return (("m", None),) * len(workload.shapes)


def stacked(
    shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: dict[str, Any]
) -> Plan:
    """Rows that follow each other, of arrays that get a dimension of their number.

    Raises:
        DTypeError, ShapeError, ArgumentError: the arrays cannot be stacked.
    """
    of_one_type("nn.stack", dtypes)
    first = shapes[0]
    for shape in shapes:
        if shape != first:
            raise ShapeError(f"nn.stack: shapes {first} and {shape} differ")
    axis = axis_of("nn.stack", asked["axis"], len(first) + 1)
    result = (*first[:axis], len(shapes), *first[axis:])
    rows, width = math.prod(first[:axis]), math.prod(first[axis:])
    flat: Shape = (width,) if rows == 1 else (rows, width)
    return Plan((flat,) * len(shapes), dtypes, (result,), {"axis": len(flat) - 1})


def parted(
    shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: dict[str, Any]
) -> Plan:
    """Rows of which each is cut in parts of `sizes`.

    Raises:
        ShapeError, ArgumentError: the sizes are not the array's.
    """
    (shape,) = shapes
    axis = axis_of("nn.concatenate_grad", asked["axis"], len(shape))
    parts = asked.get("parts")
    sizes = asked["sizes"] if parts is None else _sizes(shape, axis, parts)
    return _cut("nn.concatenate_grad", shape, dtypes, axis, sizes)


def divided(
    shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: dict[str, Any]
) -> Plan:
    """The same, of an array that is split.

    Raises:
        ShapeError, ArgumentError: the sizes are not the array's.
    """
    (shape,) = shapes
    axis = axis_of("nn.split", asked["axis"], len(shape))
    return _cut("nn.split", shape, dtypes, axis, asked["sizes"])


def _cut(
    id: str, shape: Shape, dtypes: tuple[str, ...], axis: int, sizes: Sequence[int]
) -> Plan:
    if sum(sizes) != shape[axis]:
        raise ShapeError(
            f"{id}: sizes {tuple(sizes)} do not make {shape[axis]}, the extent "
            f"of axis {axis}"
        )
    results = tuple((*shape[:axis], size, *shape[axis + 1 :]) for size in sizes)
    rows, behind = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    widths = tuple(size * behind for size in sizes)
    return Plan(((rows, sum(widths)),), dtypes, results, {"axis": 1, "sizes": widths})


def _sizes(shape: Shape, axis: int, parts: tuple[Shape, ...]) -> tuple[int, ...]:
    """The extents of arrays along the axis that they were joined along."""
    kinds = ("",) * len(parts)
    (wanted,) = joined(parts, kinds, {"axis": axis}).results
    if wanted != shape:
        raise ShapeError(
            f"nn.concatenate_grad: dy has shape {shape}, and arrays of shapes "
            f"{', '.join(map(str, parts))} join to {wanted}"
        )
    return tuple(part[axis] for part in parts)


def parted_names(_: Workload) -> Names:
    """The number of rows."""
    return (("m", None),)


def _without(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])
