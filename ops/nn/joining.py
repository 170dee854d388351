"""Padding, concatenating, stacking and splitting arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from itertools import chain
from operator import and_
from typing import Annotated, Any, Final, Literal, TypeAlias

from tensorlang import ir
from tensorlang.errors import ArgumentError
from tensorlang.ops.calls.tensors import MOST_ELEMENTS
from tensorlang.ops.spec.definition import operator
from tensorlang.ops.spec.signature import Anything, Number, Static

Pairs: TypeAlias = Annotated[
    tuple[int, ...],
    Static(
        (tuple,),
        says="a pair of whole numbers for each dimension, such as ((0, 0), (1, 1))",
        pairs=True,
    ),
]
Parts: TypeAlias = Annotated[
    int | tuple[int, ...],
    Static((int, tuple), says="a number, or whole numbers", kind="other"),
]
Mode: TypeAlias = Literal["constant", "reflect", "replicate", "circular"]
_ONE_AROUND: Final = (0, 0, 0, 0, 1, 1, 1, 1)
_THIRD: Final = 1024
_JOINED: Final = ((1 << 20, 8), (1 << 20, 4), (1 << 20, 4))


@operator(
    "nn.pad",
    shapes=((64, 64, 56, 56),),
    usual={"padding": _ONE_AROUND},
    whole=True,
    gradient={},
)
def pad(
    x: Anything,
    padding: Pairs,
    value: Anything | Number | None = None,
    *,
    mode: Mode = "constant",
) -> ir.Tensor:
    """Pad with a constant, or with elements of the array; negative padding crops.

    Args:
        padding: For each dimension, a pair: the number of elements before and after.
        value: The constant: a number or a scalar array of `x`'s dtype; 0 by default.
        mode: What is before and after the elements of a dimension: `constant`; in
            `reflect`, the others, mirrored at the first and last element; in
            `replicate`, these; in `circular`, the other end.
    """
    extents, pairs = _around(x.shape, padding)
    held = ir.reshaped(x, extents)
    ir.require(
        value is None or mode == "constant",
        f"a value is for constant padding, not for mode {mode!r}",
        ArgumentError,
    )
    if mode == "constant":
        made = _framed(held, pairs, value)
    else:
        made = _continued(held, pairs, mode)
    return ir.reshaped(made, _padded(x.shape, padding))


def _framed(held: ir.Tensor, pairs: Sequence[tuple[int, int]], value: Any) -> ir.Tensor:
    """Padded with a constant."""
    around: Any = value
    if isinstance(value, ir.Tensor):
        ir.require(
            value.shape == (), f"value is a number, not an array of shape {value.shape}"
        )
        around = value[()]
    dtype = held.dtype
    constant = ir.as_expr(0, dtype) if around is None else ir.stored(around, dtype)

    def element(*i: ir.Expr) -> ir.Expr:
        limits: list[ir.Expr] = []
        for n, extent, (a, b) in zip(i, held.shape, pairs, strict=True):
            limits += [n >= a] * (a > 0) + [n < a + extent] * (b > 0)
        place = (n - a if a else n for n, (a, _) in zip(i, pairs, strict=True))
        read = held[tuple(place)]
        if not limits:
            return read
        inside = reduce(and_, limits)
        assert isinstance(read, ir.nodes.Load)
        there = ir.nodes.Load(read.buffer, read.indices, inside)
        return ir.select(inside, there, constant)

    return ir.compute(_padded(held.shape, [*chain(*pairs)]), element, "y")


def _continued(x: ir.Tensor, pairs: Sequence[tuple[int, int]], mode: str) -> ir.Tensor:
    """Padded with elements, dimension by dimension; ShapeError for too few of them."""
    for axis, (low, high) in enumerate(pairs):
        if not (low or high):
            continue
        extent = int(x.shape[axis])
        begin, kept = max(-low, 0), extent + min(low, 0) + min(high, 0)
        most = {"reflect": extent - 1, "circular": kept}.get(mode, MOST_ELEMENTS)
        ir.require(
            extent > 0 and max(low, high) <= most,
            f"padding of {low} and {high} in mode {mode!r} takes more elements than "
            f"the {extent} of its dimension",
        )
        first, last, step = {
            "reflect": (low, extent - 2, -1),
            "replicate": (0, extent - 1, 0),
            "circular": (begin + kept - low, begin, 1),  # of what is not cropped
        }[mode]
        pieces = (
            ir.Piece(x, first, step, max(low, 0)),
            ir.Piece(x, begin, 1, kept),
            ir.Piece(x, last, step, max(high, 0)),
        )
        some = [piece for piece in pieces if piece.count] or pieces[:1]
        x = ir.joined_pieces(some, axis, f"along{axis}", f"along{axis}_part")
    return x


def _around(
    shape: Sequence[Any], padding: Sequence[int]
) -> tuple[list[Any], list[tuple[int, int]]]:
    """Extents and pairs of padding, collapsed to fewer dimensions.

    Dimensions before the first padded one become one, of open size. The others are
    constants of the kernel, except the first dimension of all.
    """
    low, high = padding[::2], padding[1::2]
    ir.require(
        len(low) == len(high) == len(shape),
        f"{len(low)} pairs of padding for an array of {len(shape)} dimensions; give "
        "one for each",
        ArgumentError,
    )
    ir.require(
        sum(padding) <= MOST_ELEMENTS,
        f"an array padded by {padding} has more than 2**48 elements; pad less",
    )
    pairs = [*zip(low, high, strict=True)]
    cropped = (n + min(0, *p, sum(p)) >= 0 for n, p in zip(shape, pairs, strict=True))
    ir.require(
        all(cropped), f"padding {padding} crops more than shape {tuple(shape)} has"
    )
    if not any(padding[2:]) and any(padding):
        return [*shape[:1], *map(int, shape[1:])], pairs
    first = next((n for n, pair in enumerate(pairs) if any(pair)), len(pairs))
    rows = [ir.elements(tuple(shape[:first]))] * bool(first)
    return [*rows, *map(int, shape[first:])], [(0, 0)] * len(rows) + pairs[first:]


def _padded(shape: Sequence[Any], padding: Sequence[int]) -> tuple[Any, ...]:
    pairs = zip(padding[::2], padding[1::2], strict=True)
    return tuple(n + a + b for n, (a, b) in zip(shape, pairs, strict=True))


# ------------------------------------------------------ concatenate, stack, split


@operator(
    "nn.concatenate",
    shapes=((64, 64, 28, 28), (64, 32, 28, 28)),
    usual={"axis": 1},
    whole=True,
    promotes=True,
    gradient={"shapes": _JOINED},
)
def concatenate(arrays: Sequence[Anything], axis: int = 0) -> ir.Tensor:
    """Join arrays along an existing axis.

    Args:
        arrays: One or more arrays, of equal shape except along `axis`.
        axis: Axis along which to join.
    """
    shape, at = _together([x.shape for x in arrays], axis)
    return ir.reshaped(_behind(arrays, at), shape)


@operator(
    "nn.stack",
    shapes=((64, 512), (64, 512)),
    usual={"axis": 1},
    whole=True,
    promotes=True,
    gradient={},
)
def stack(arrays: Sequence[Anything], axis: int = 0) -> ir.Tensor:
    """Join arrays along a new axis.

    Args:
        arrays: One or more arrays of the same shape.
        axis: Position of the new axis in the result.
    """
    first = arrays[0].shape
    for x in arrays:
        ir.require(x.shape == first, f"shapes {first} and {x.shape} differ")
    at = ir.rows.axis_of(axis, len(first) + 1)
    shape = (*first[:at], len(arrays), *first[at:])
    return ir.reshaped(_behind(arrays, at), shape)


@operator(
    "nn.split",
    aliases=(),  # `random.split` has it
    shapes=((8192, 3 * _THIRD),),
    usual={"parts": 3, "axis": 1},
    whole=True,
)
def split(x: Anything, parts: Parts, axis: int = 0) -> tuple[ir.Tensor, ...]:
    """Split along an axis, in one pass; returns a tuple of arrays.

    Args:
        x: Array of any dtype, at least one dimension.
        parts: Number of equal parts, or the size of each part.
        axis: Axis to split.
        out: Tuple of output arrays.
    """
    at = ir.rows.axis_of(axis, x.ndim)
    return _parts(x, _sizes(parts, int(x.shape[at])), at, "y")


def _together(shapes: Sequence[Any], axis: int) -> tuple[tuple[Any, ...], int]:
    """The shape of concatenated arrays, and the nonnegative axis.

    Raises:
        ShapeError, ArgumentError: the arrays cannot be joined.
    """
    first = shapes[0]
    at = ir.rows.axis_of(axis, len(first))
    for shape in shapes:
        ir.require(
            len(shape) == len(first)
            and (*shape[:at], *shape[at + 1 :]) == (*first[:at], *first[at + 1 :]),
            f"shapes {first} and {shape} differ beside axis {at}",
        )
    total = sum(shape[at] for shape in shapes)
    return (*first[:at], total, *first[at + 1 :]), at


def _behind(arrays: Sequence[ir.Tensor], axis: int) -> ir.Tensor:
    """Concatenate as rows, or as vectors where all leading extents are 1."""
    ahead = arrays[0].shape[:axis]
    if all(extent == 1 for extent in ahead):
        return ir.joined([ir.reshaped(x, (ir.elements(x.shape),)) for x in arrays], 0)
    rows = ir.elements(ahead)
    widths = [int(math.prod(x.shape[axis:])) for x in arrays]
    held = [
        ir.reshaped(x, (rows, width)) for x, width in zip(arrays, widths, strict=True)
    ]
    return ir.joined(held, 1)


def _parts(
    x: ir.Tensor, sizes: Sequence[Any], axis: int, name: str
) -> tuple[ir.Tensor, ...]:
    """Parts of these sizes along an axis; only leading dimensions stay open."""
    ahead, behind = x.shape[:axis], x.shape[axis + 1 :]
    rows = ir.elements(ahead)
    widths = [int(size * math.prod(behind)) for size in sizes]
    starts = [sum(widths[:n]) for n in range(len(widths))]
    held = ir.reshaped(x, (rows, sum(widths)))

    def part(n: int) -> ir.Tensor:
        start, extents = starts[n], (rows, widths[n])
        made = ir.compute(extents, lambda i, j: held[i, j + start], f"{name}{n}")
        return ir.reshaped(made, (*ahead, sizes[n], *behind))

    return tuple(map(part, range(len(widths))))


def _sizes(parts: int | tuple[int, ...], extent: int) -> tuple[int, ...]:
    """The size of each part."""
    if isinstance(parts, int):
        ir.require(
            parts >= 1, f"there is one part at least, not {parts}", ArgumentError
        )
        ir.require(
            extent % parts == 0,
            f"{extent} places are not {parts} equal parts; give the size of each",
        )
        return (extent // parts,) * parts
    ir.require(
        parts and min(parts) >= 0,
        f"parts are a number, or sizes from 0 on, not {parts}",
        ArgumentError,
    )
    ir.require(
        sum(parts) == extent,
        f"sizes {parts} do not make {extent}, the extent of the axis",
    )
    return parts
