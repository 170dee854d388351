"""Padding arrays, joining them, and taking the parts back out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tensorlang import ir
from tensorlang.errors import ArgumentError
from tensorlang.ops.definition import operator
from tensorlang.ops.signature import Anything, Like, Number, Static
from tensorlang.ops.tensors import MOST_ELEMENTS

if TYPE_CHECKING:
    from tensorlang.ir import Expr, Tensor

    Pairs: TypeAlias = tuple[int, ...]
    Unread: TypeAlias = float | None
    Parts: TypeAlias = int | tuple[int, ...]
else:
    Pairs = Static(
        (tuple,),
        says="a pair of whole numbers for each dimension, such as ((0, 0), (1, 1))",
        pairs=True,
    )
    Unread = Static((bool, int, float), (None,), "a number", kind="float")
    Parts = Static((int, tuple), says="a number, or whole numbers", kind="other")
_ONE_AROUND: Final = (0, 0, 0, 0, 1, 1, 1, 1)
_THIRD: Final = 1024


@operator(
    "nn.pad",
    shapes=((64, 64, 56, 56),),
    usual={"padding": _ONE_AROUND},
    whole=True,
    aliases=("pad",),
)
def pad(x: Anything, padding: Pairs, value: Anything | Number | None = None) -> Tensor:
    """The array with a constant around it.

    Args:
        padding: For each dimension, how many elements come before and behind; a pair.
        value: The constant, of the kind that `x` has; 0 where it is left out.
    """
    extents, pairs = _around(x.shape, padding)
    held = ir.reshaped(x, extents)
    around: Any = value
    if isinstance(value, ir.Tensor):
        ir.require(
            value.shape == (),
            "value is a number, not an array of shape {shape}",
            shape=value.shape,
        )
        around = value[()]
    constant = ir.as_expr(0, x.dtype) if around is None else ir.stored(around, x.dtype)

    def element(*i: Expr) -> Expr:
        limits: list[Expr] = []
        for n, extent, (a, b) in zip(i, extents, pairs, strict=True):
            limits += [n >= a] * bool(a) + [n < a + extent] * bool(b)
        read = held[
            tuple(n - a if a else n for n, (a, _) in zip(i, pairs, strict=True))
        ]
        if not limits:
            return read
        inside = reduce(and_, limits)
        there = ir.nodes.Load(read.buffer, read.indices, inside)
        return ir.select(inside, there, constant)

    shape = [n + a + b for n, (a, b) in zip(extents, pairs, strict=True)]
    return ir.reshaped(ir.compute(shape, element, "y"), _padded(x.shape, padding))


@operator(
    "nn.pad_grad",
    shapes=((64, 64, 58, 58), (64, 64, 56, 56)),
    usual={"padding": _ONE_AROUND},
    whole=True,
    aliases=("pad_grad",),
)
def pad_grad(dy: Anything, x: Like, padding: Pairs, value: Unread = None) -> Tensor:
    """The gradient of `pad`: what lies inside of the padding.

    Args:
        padding: As in the forward call.
        value: As in the forward call; it does not matter.
    """
    del value
    extents, pairs = _around(x, padding)
    ir.require(
        dy.shape == _padded(x, padding),
        "dy of shape {dy} is no result of padding x of shape {x} by {padding}",
        dy=dy.shape,
        x=x,
        padding=[*zip(padding[::2], padding[1::2], strict=True)],
    )
    shape = [n + a + b for n, (a, b) in zip(extents, pairs, strict=True)]
    held = ir.reshaped(dy, shape)

    def element(*i: Expr) -> Expr:
        return held[
            tuple(n + a if a else n for n, (a, _) in zip(i, pairs, strict=True))
        ]

    return ir.reshaped(ir.compute(extents, element, "dx"), x)


def _around(
    shape: Sequence[Any], padding: Sequence[int]
) -> tuple[list[Any], list[tuple[int, int]]]:
    """Extents, and what comes before and behind, in fewer dimensions.

    Those before the first that is padded are one, any number of rows. Those from there
    on are part of the kernel, but for the first one of all.

    Raises:
        ArgumentError: there is not a pair for each dimension.
    """
    low, high = padding[::2], padding[1::2]
    ir.require(
        len(low) == len(high) == len(shape),
        "{count} pairs of padding for an array of {rank} dimensions; give one for each",
        ArgumentError,
        count=len(low),
        rank=len(shape),
    )
    ir.require(
        min(padding, default=0) >= 0,
        "padding is from 0 on, not {padding}; a slice takes elements away",
        ArgumentError,
        padding=padding,
    )
    ir.require(
        sum(padding) <= MOST_ELEMENTS,
        "an array padded by {padding} has more than 2**48 elements; pad less",
        padding=padding,
    )
    pairs = [*zip(low, high, strict=True)]
    if not any(padding[2:]) and any(padding):
        return [*shape[:1], *map(int, shape[1:])], pairs
    first = next((n for n, pair in enumerate(pairs) if any(pair)), len(pairs))
    rows = [ir.elements(tuple(shape[:first]))] * bool(first)
    return [*rows, *map(int, shape[first:])], [(0, 0)] * len(rows) + pairs[first:]


def _padded(shape: Sequence[Any], padding: Sequence[int]) -> tuple[Any, ...]:
    pairs = zip(padding[::2], padding[1::2], strict=True)
    return tuple(n + a + b for n, (a, b) in zip(shape, pairs, strict=True))


# --------------------------------------------------------- arrays behind each other


@operator(
    "nn.concatenate",
    shapes=((64, 64, 28, 28), (64, 32, 28, 28)),
    usual={"axis": 1},
    whole=True,
    aliases=("concatenate",),
)
def concatenate(arrays: Sequence[Anything], axis: int = 0) -> Tensor:
    """Arrays one behind the other.

    Args:
        arrays: One or more, of one type, and of one shape but along the axis.
        axis: The dimension along which they follow each other.
    """
    shape, at = _together([x.shape for x in arrays], axis)
    return ir.reshaped(_behind(arrays, at), shape)


@operator(
    "nn.concatenate_grad",
    shapes=((1 << 20, 8), (1 << 20, 4), (1 << 20, 4)),
    usual={"axis": 1},
    whole=True,
    aliases=("concatenate_grad",),
)
def concatenate_grad(dy: Anything, arrays: Sequence[Like], axis: int = 0) -> Any:
    """The gradients of `concatenate`: a part of `dy` for each of the arrays.

    Args:
        arrays: What was joined; only their shapes count.
        axis: As in the forward call.
        out: Where the results go: a tuple, or an array where there is one.
    """
    shape, at = _together(arrays, axis)
    ir.require(
        dy.shape == shape,
        "dy has shape {dy}, and arrays of shapes {arrays} join to {shape}",
        dy=dy.shape,
        arrays=", ".join(map(str, arrays)),
        shape=shape,
    )
    parts = _parts(dy, [each[at] for each in arrays], at, "dx")
    return parts if len(parts) > 1 else parts[0]


@operator(
    "nn.stack",
    shapes=((64, 512), (64, 512)),
    usual={"axis": 1},
    whole=True,
    aliases=("stack",),
)
def stack(arrays: Sequence[Anything], axis: int = 0) -> Tensor:
    """Arrays along a new dimension.

    Args:
        arrays: One or more, of one type and shape.
        axis: Where the new dimension stands in the result.
    """
    first = arrays[0].shape
    for x in arrays:
        ir.require(
            x.shape == first,
            "shapes {first} and {other} differ",
            first=first,
            other=x.shape,
        )
    at = ir.rows.axis_of(axis, len(first) + 1)
    shape = (*first[:at], len(arrays), *first[at:])
    return ir.reshaped(_behind(arrays, at), shape)


@operator(
    "nn.split",
    shapes=((8192, 3 * _THIRD),),
    usual={"parts": 3, "axis": 1},
    whole=True,
)
def split(x: Anything, parts: Parts, axis: int = 0) -> tuple[Tensor, ...]:
    """An array cut into parts along an axis, in one pass: a tuple of arrays.

    Args:
        x: An array of any type with one dimension or more.
        parts: How many equal parts; or the size of each part.
        axis: The dimension that is cut.
        out: Where the parts go: a tuple.
    """
    at = ir.rows.axis_of(axis, x.ndim)
    return _parts(x, _sizes(parts, int(x.shape[at])), at, "y")


def _together(shapes: Sequence[Any], axis: int) -> tuple[tuple[Any, ...], int]:
    """The shape of arrays behind each other, and the axis counted from the front.

    Raises:
        ShapeError, ArgumentError: they cannot be joined.
    """
    first = shapes[0]
    at = ir.rows.axis_of(axis, len(first))
    for shape in shapes:
        ir.require(
            len(shape) == len(first)
            and (*shape[:at], *shape[at + 1 :]) == (*first[:at], *first[at + 1 :]),
            "shapes {first} and {shape} differ beside axis {axis}",
            first=first,
            shape=shape,
            axis=at,
        )
    total = sum(shape[at] for shape in shapes)
    return (*first[:at], total, *first[at + 1 :]), at


def _behind(arrays: Sequence[Tensor], axis: int) -> Tensor:
    """Rows behind each other of the same number of rows; or of a single one each."""
    ahead = arrays[0].shape[:axis]
    if all(extent == 1 for extent in ahead):
        return ir.joined([ir.reshaped(x, (ir.elements(x.shape),)) for x in arrays], 0)
    rows = ir.elements(ahead)
    widths = [int(math.prod(x.shape[axis:])) for x in arrays]
    held = [
        ir.reshaped(x, (rows, width)) for x, width in zip(arrays, widths, strict=True)
    ]
    return ir.joined(held, 1)


def _parts(x: Tensor, sizes: Sequence[Any], axis: int, name: str) -> tuple[Tensor, ...]:
    """Parts of these sizes along an axis; all but what lies before it is fixed."""
    ahead, behind = x.shape[:axis], x.shape[axis + 1 :]
    rows = ir.elements(ahead)
    widths = [int(size * math.prod(behind)) for size in sizes]
    starts = [sum(widths[:n]) for n in range(len(widths))]
    held = ir.reshaped(x, (rows, sum(widths)))

    def part(n: int) -> Tensor:
        start, extents = starts[n], (rows, widths[n])
        made = ir.compute(extents, lambda i, j: held[i, j + start], f"{name}{n}")
        return ir.reshaped(made, (*ahead, sizes[n], *behind))

    return tuple(map(part, range(len(widths))))


def _sizes(parts: int | tuple[int, ...], extent: int) -> tuple[int, ...]:
    """The size of each part.

    Raises:
        ArgumentError, ShapeError: there are none, or they do not make the extent.
    """
    if isinstance(parts, int):
        ir.require(
            parts >= 1,
            "there is one part at least, not {parts}",
            ArgumentError,
            parts=parts,
        )
        ir.require(
            extent % parts == 0,
            "{extent} places are not {parts} equal parts; give the size of each",
            extent=extent,
            parts=parts,
        )
        return (extent // parts,) * parts
    ir.require(
        parts and min(parts) >= 0,
        "parts are a number, or sizes from 0 on, not {parts}",
        ArgumentError,
        parts=parts,
    )
    ir.require(
        sum(parts) == extent,
        "sizes {parts} do not make {extent}, the extent of the axis",
        parts=parts,
        extent=extent,
    )
    return parts
