"""Convolutions, transposed convolutions and the gradients for images, as loop nests.

Images are `(n, groups, channels, *spatial)`, or `(n, *spatial, groups, channels)`;
weights `(groups, outputs, channels, *window)`. A single group has no dimension. In
depthwise convolutions, groups are the only channel dimension: `(n, groups, *spatial)`
and `(groups, *window)`.

All are one sum of products. Algorithms differ in the order of what it reads:

* `rows`: images are flattened, so that vectors run across the ends of lines.
* `packed`: the weights' outputs are moved last, and the channels of images.
* `pixels`: images with channels last are multiplied as a matrix with a row per pixel.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tensorlang import ir
from tensorlang.ops.nn.convolution_images import Lines, Pixels, Rows
from tensorlang.ops.nn.convolution_problem import Problem
from tensorlang.ops.nn.convolution_sides import (
    Part,
    Side,
    interleaved,
    sides,
    transposed_sides,
)
from tensorlang.ops.nn.convolution_stages import (
    channels,
    finished,
    flipped_weights,
    packed_weights,
    widened,
)
from tensorlang.ops.nn.images import (
    Layout,
    channels_first,
    channels_last,
    padded,
    staged,
    window_names,
)
from tensorlang.ops.nn.windows import LAYOUTS

Indices = tuple[Any, ...]


def conv(
    x: ir.Tensor,
    w: ir.Tensor,
    b: ir.Tensor | None,
    p: Problem,
    activation: str | None = None,
    *,
    rows: bool = False,
    packed: bool = False,
    pixels: bool = False,
    addend: ir.Tensor | None = None,
) -> ir.Tensor:
    """Convolution: the sum over channels and window of image times weight.

    Args:
        x: The images.
        w: The weights.
        b: The bias, or None.
        p: The sizes.
        activation: Name of the activation.
        rows: Whether images are flattened; those with channels last are copied with
            channels first, and the results' channels are moved last again.
        packed: Whether weights are packed, outputs last; images with channels first are
            copied with channels last.
        pixels: Whether the sums have one dimension for all pixels, and channels last.
        addend: Added before the activation.
    """
    frame, of = Layout(p.layout), sides(p)
    x = channels_first(x, frame) if rows else x
    x, images = _read(x, frame, of, rows=rows, packed=packed, pixels=pixels)
    name = _name_of_sums(x, images, b, activation, addend)
    found = _summed(x, w, images, name, packed=packed)
    return _results(found, images, frame, p.result, b, activation, x.dtype, addend)


def conv_transposed(
    x: ir.Tensor,
    w: ir.Tensor,
    b: ir.Tensor | None,
    p: Problem,
    activation: str | None = None,
    *,
    rows: bool = False,
    packed: bool = False,
    pixels: bool = False,
) -> ir.Tensor:
    """The transposed convolution, to images of the problem's size, by phases."""
    frame, of = Layout(p.layout), transposed_sides(p)
    x, images = _read(x, frame, of, rows=rows, packed=packed, pixels=pixels)
    name = _name_of_sums(x, images, b, activation)
    found = _summed(x, w, images, name, back=True, packed=packed)
    return _results(found, images, frame, p.image, b, activation, x.dtype)


def conv_dilated(
    x: ir.Tensor,
    w: ir.Tensor,
    b: ir.Tensor | None,
    p: Problem,
    activation: str | None = None,
) -> ir.Tensor:
    """As `conv_transposed`, by a convolution of the images dilated by the stride.

    Its windows are flipped, and inputs and outputs exchanged.
    """
    frame, reach = Layout(p.layout), [n - 1 for n in p.windows.reach]
    low = [far - before for far, before in zip(reach, p.padding[::2], strict=True)]
    extents = [n + far for n, far in zip(p.image, reach, strict=True)]
    image = padded(x, frame, low, extents, spread=p.stride, name="spread")
    of = [
        replace(side, given=n, before=0, extent=n, step=1, lines=lines)
        for side, n, lines in zip(sides(p), extents, p.image, strict=True)
    ]
    images = Lines(frame, of)
    name = _name_of_sums(x, images, b, activation)
    found = _summed(image, flipped_weights(w, frame.rank), images, name)
    return finished(found[0][1], b, frame, activation, x.dtype)


# ----------------------------------------------------------------------- sums


def _read(
    x: ir.Tensor,
    frame: Layout,
    of: Sequence[Side],
    *,
    rows: bool,
    packed: bool,
    pixels: bool,
) -> tuple[ir.Tensor, Lines]:
    """The images, with channels last if weights are packed, and how they are read."""
    if rows:
        return x, Rows(frame, of, x)
    if pixels:
        return x, Pixels(frame, of)
    if not packed or not frame.first:
        return x, Lines(frame, of)
    images = Lines(Layout(LAYOUTS[frame.rank][1]), of)
    images.aligned = False
    return channels_last(x, frame), images


def _name_of_sums(x: ir.Tensor, images: Lines, *later: object) -> str:
    """`y` if the sums are the results: in their type, with nothing done to them."""
    done = images.aligned and x.dtype.name not in ir.NARROW
    return "y" if done and all(each is None for each in later) else "sums"


def _summed(
    x: ir.Tensor,
    w: ir.Tensor,
    images: Lines,
    of: str,
    *,
    back: bool = False,
    packed: bool = False,
) -> list[tuple[Sequence[Part], ir.Tensor]]:
    """The sums of products of each combination of parts.

    Args:
        x: The images.
        w: The weights.
        images: How images are read.
        of: The name of the sums, the first ones' if there are several.
        back: Whether weights go from outputs to inputs.
        packed: Whether weights are packed, outputs last.
    """
    rank = len(images.sides)
    image = images.laid(widened(x) if packed else x)
    filters = w
    if packed:
        filters = packed_weights(w, rank, back=back)
    elif isinstance(images, Rows):
        filters = widened(w)
    own, inner = channels(w, rank, back=back)

    def weight(of: Indices, c: Indices, tap: Sequence[Any]) -> ir.Expr:
        order = (*of, *c, *tap)
        if packed:
            order = (*of[:-1], *c, *tap, of[-1])
        elif back:
            order = (*of[:-1], *c, of[-1], *tap)
        return filters[order]

    found: list[tuple[Sequence[Part], ir.Tensor]] = []
    for parts in itertools.product(*(side.parts for side in images.sides)):
        name = f"{of}_{len(found)}" if found else of
        forwards = not (packed or isinstance(images, Pixels))
        made = _sums(image, weight, images, parts, own, inner, name, forwards=forwards)
        found.append((parts, made))
    return found


def _sums(  # noqa: PLR0917 - operands of a sum
    image: ir.Tensor,
    weight: Callable[[Indices, Indices, Sequence[Any]], ir.Expr],
    images: Lines,
    parts: Sequence[Part],
    own: Indices,
    inner: Indices,
    name: str,
    *,
    forwards: bool,
) -> ir.Tensor:
    """The sums of the phases of one combination of parts.

    Args:
        image: The images, laid out.
        weight: Reads a weight, given channels, summed channels and window element.
        images: How images are read.
        parts: The phases along each dimension.
        own: Extents of the results' channels.
        inner: Extents of the summed channels.
        name: Name of the sums.
        forwards: Whether windows of a single phase read images forwards; otherwise
            weights, which a transposed convolution reads in the opposite order.
    """
    several = [n for n, part in enumerate(parts) if part.phases > 1]
    cut, names = 1 + len(several), window_names(len(parts))
    folded = [ir.reduce_axis(n, "c") for n in inner]
    taps = [ir.reduce_axis(p.taps, of) for p, of in zip(parts, names, strict=True)]

    def element(at: Indices) -> ir.Reduction:
        phases = dict(zip(several, at[1:cut], strict=True))
        _, of, place = images.frame.parts((at[0], *at[cut:]))
        offsets, elements = [], []
        for n, (side, part, tap) in enumerate(
            zip(images.sides, parts, taps, strict=True)
        ):
            first = phases.get(n, 0) + part.first
            number: ir.Expr = tap.var
            if forwards and side.slope < 0 and side.phases == 1:
                number = part.taps - 1 - number
            offsets.append(side.offset(first, number))
            elements.append(side.element(first, number))
        c = tuple(axis.var for axis in folded)
        seen = image[images.at(at[0], (*of[:-1], *c) if c else of, place, offsets)]
        return ir.sum(
            ir.wide(seen) * ir.wide(weight(of, c, elements)), (*folded, *taps)
        )

    called = [f"t{names[n][1:]}" for n in several]
    batch = ("b", *called)
    shape = (image.shape[0], *(parts[n].phases for n in several))
    return staged(
        images.frame.joined(shape, own, images.places),
        images.frame.joined(batch, ("g", "o")[2 - len(own) :], images.names),
        element,
        name,
    )


# -------------------------------------------------------------------- results


def _results(  # noqa: PLR0917 - operands of an epilogue
    found: Sequence[tuple[Sequence[Part], ir.Tensor]],
    images: Lines,
    frame: Layout,
    extents: Sequence[int],
    b: ir.Tensor | None,
    activation: str | None,
    dtype: ir.DType,
    addend: ir.Tensor | None = None,
) -> ir.Tensor:
    """The results: the sums of their phases, without junk between lines, finished."""
    sums = found[0][1]
    if images.aligned:
        return finished(sums, b, frame, activation, dtype, addend=addend)

    def read(at: Indices) -> ir.Expr:
        batch, own, pixel = frame.parts(at)

        def phase(sums: ir.Tensor, number: Indices, lines: Indices) -> ir.Expr:
            place = images.place(lines)
            return sums[images.frame.joined((*batch, *number), own, place)]

        return interleaved(pixel, images.sides, found, phase)

    several = sum(part.phases > 1 for part in found[0][0])
    n, own, _ = images.frame.parts((sums.shape[0], *sums.shape[1 + several :]))
    shape = frame.joined(n, own, tuple(extents))
    return finished(
        sums, b, frame, activation, dtype, read=read, shape=shape, addend=addend
    )
