"""Gradients of convolutions for their weights, as dot products of lines.

Products are summed per lane first, then across lanes: of whole flattened images for
windows of one pixel, line by line for depthwise convolutions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tensorlang import ir
from tensorlang.ops.nn.convolution_images import Lines, Rows
from tensorlang.ops.nn.convolution_problem import Problem
from tensorlang.ops.nn.convolution_sides import sides
from tensorlang.ops.nn.convolution_stages import narrowed
from tensorlang.ops.nn.images import Layout, staged, window_names
from tensorlang.ops.nn.weight_gradients import channels_of, lanes_of, split

Indices = tuple[Any, ...]


def dot_products(dy: ir.Tensor, x: ir.Tensor, p: Problem) -> ir.Tensor:
    """As `direct`, for channels first: depthwise, or windows of one pixel."""
    return _of_lines(dy, x, p) if p.depthwise else _of_rows(dy, x, p)


def _of_rows(dy: ir.Tensor, x: ir.Tensor, p: Problem) -> ir.Tensor:
    """A matrix product over flattened images, for windows of one pixel.

    Whole rows would multiply elements of the image by the zeros between results, which
    is wrong for infinities and NaNs; with windows of one pixel there are none.
    """
    frame = Layout(p.layout)
    alone = replace(p.windows, stride=(1,) * frame.rank)
    images = Rows(frame, sides(p), x)
    given = Rows(frame, sides(replace(p, image=p.result, windows=alone)), dy)
    image, spaced = images.laid(x, "image"), given.laid(dy, "spaced")
    made, inner = channels_of(dy, x, p)
    batch = ir.reduce_axis(dy.shape[0], "b")
    pixel = ir.reduce_axis(images.length, "s")
    names, first = ("g", "o", "c")[2 - len(made) :], (0,) * frame.rank

    def element(at: Indices) -> Any:
        made_at, c = split(at, len(made))
        seen = image[
            images.at(
                batch.var, (*made_at[:-1], *c), (pixel.var,), images.offsets(first)
            )
        ]
        given_at = given.at(batch.var, made_at, (pixel.var,), given.offsets(first))
        return ir.sum(ir.wide(spaced[given_at]) * ir.wide(seen), (batch, pixel))

    sums = staged((*made, *inner), names, element, "products")

    def windowed(at: Indices) -> Any:
        made_at, (c,), tap = split(at, len(made), 1)
        return sums[(*made_at, sum(tap, c))]  # taps are 0, but keep their dimensions

    names = (*names, *window_names(frame.rank))
    dw = staged((*made, *inner, *p.window), names, windowed, "dw")
    return narrowed(dw, dy.dtype, names)


def _of_lines(dy: ir.Tensor, x: ir.Tensor, p: Problem) -> ir.Tensor:
    """Dot products of lines, of each image; then the sum over images."""
    images, size = Lines(Layout(p.layout), sides(p)), lanes_of(x)
    image, columns = images.laid(x, "image"), p.result[-1]
    whole, left = divmod(columns, size)
    names = ("b", "g", *window_names(len(p.window)))
    found = []
    if whole:
        parts = _lanes(dy, image, images, 0, (whole, size), "part")
        found.append(_added(parts, names, "each"))
    if left:
        parts = _lanes(dy, image, images, columns - left, (1, left), "rest")
        found.append(_added(parts, names, "ends"))
    both = found[0]
    if len(found) > 1:
        both = staged(both.shape, names, lambda at: found[0][at] + found[1][at], "both")
    batch = ir.reduce_axis(dy.shape[0], "b")
    sums = staged(
        both.shape[1:],
        names[1:],
        lambda at: ir.sum(both[(batch.var, *at)], batch),
        "dw",
    )
    return narrowed(sums, dy.dtype, names[1:])


def _lanes(  # noqa: PLR0917 - operands of a stage
    dy: ir.Tensor,
    image: ir.Tensor,
    images: Lines,
    first: int,
    size: tuple[int, int],
    name: str,
) -> ir.Tensor:
    """Sums per lane over `size` (vectors, lanes) of each line, from column `first`."""
    vectors, lanes = size
    rank = len(images.sides)
    lines = [
        ir.reduce_axis(n, of)
        for n, of in zip(dy.shape[2:-1], ("z", "i")[3 - rank :], strict=True)
    ]
    vector = ir.reduce_axis(vectors, "s")

    def element(at: Indices) -> Any:
        (batch, group), tap, (lane,) = split(at, 2, rank)
        column = vector.var * lanes + lane + first
        place = (*(line.var for line in lines), column)
        seen = image[images.at(batch, (group,), place, images.offsets(tap))]
        given = dy[(batch, group, *place)]
        return ir.sum(ir.wide(given) * ir.wide(seen), (*lines, vector))

    shape = (*dy.shape[:2], *(side.window for side in images.sides), lanes)
    names = ("b", "g", *window_names(rank), "l")
    return staged(shape, names, element, name)


def _added(parts: ir.Tensor, names: Sequence[str], name: str) -> ir.Tensor:
    """The sum across lanes."""
    lane = ir.reduce_axis(parts.shape[-1], "l")
    return staged(
        parts.shape[:-1], names, lambda at: ir.sum(parts[(*at, lane.var)], lane), name
    )
