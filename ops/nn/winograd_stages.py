"""The stages of the fused Winograd convolution, by blocks of rows of tiles.

A tile is m by m results. For each block, whose intermediates fit in cache:

    lines[c, q]             its part of the padded image, flattened
    turned[q, c]            the same, channels last: the lanes of all that follows
    image[p, t, c]          B^T d B of each tile t, at (m + 2)^2 points p
    sums[p, t, o]           the sum over c of image[p, t, c] * weight[p, c, o]
    tiles[q, o]             A^T sums A of each tile, at its results' places
    turned_back[o, q]       channels first again
    y                       cropped to the image; bias, activation

Channels and outputs are grouped into vectors, the last one zero-padded.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from tensorlang.ir import as_expr, f32, reduce_axis, select
from tensorlang.ir import sum as total
from tensorlang.ir.nodes import Buffer, binary
from tensorlang.ops.nn.epilogues import activated
from tensorlang.ops.nn.images import source, staged
from tensorlang.ops.nn.multi_store import Indices, extents, multi_store
from tensorlang.ops.nn.winograd_blocks import LANES, STRIP, Blocks
from tensorlang.ops.nn.winograd_products import transformed

if TYPE_CHECKING:
    from tensorlang.ir import Reduction
    from tensorlang.ir.frontend import Tensor
    from tensorlang.ir.nodes import Expr


# ---------------------------------------------------------------------- image


def lines(x: Tensor, cut: Blocks, weight: Tensor) -> Tensor:
    """The lines of the padded image that a block needs, flattened, by channel group.

    Weights are computed first, so that all later stages fuse into one nest.
    """
    length = cut.height * cut.pitch

    def element(at: Indices) -> Expr:
        n, g, group, c, line, column = at
        channel, inside = group * LANES + c, as_expr(True)
        if cut.inputs % LANES:
            inside = channel < cut.inputs
            channel = binary("min", channel, as_expr(cut.inputs - 1))
        row, above = source(g * cut.lines + line - cut.low[0], cut.size[0])
        at_column, beside = source(column - cut.low[1], cut.size[1])
        value = x[n, channel, row, at_column]
        return select(inside & above & beside, value, as_expr(0.0, f32))

    groups = -(-cut.inputs // LANES)
    shape = (x.buffer.shape[0], *extents(cut.count, groups, LANES, length))
    made = Buffer("lines", f32, shape)
    sizes = (
        x.buffer.shape[0],
        *extents(cut.count, groups, LANES, cut.height, cut.pitch),
    )

    def body(at: Indices) -> list[tuple[Indices, Expr]]:
        *outer, line, column = at
        return [((*outer, line * cut.pitch + column), element(at))]

    return multi_store(made, ("b", "g", "cg", "c", "i", "j"), sizes, body, weight, x)


def transposed(lines: Tensor) -> Tensor:
    """The lines transposed to channels last."""
    n, g, groups, lanes, length = lines.buffer.shape
    made: Tensor = staged(
        (n, g, groups, length, lanes),
        ("b", "g", "cg", "q", "c"),
        lambda at: lines[(*at[:3], at[4], at[3])],
        "turned",
    )
    return made


def image(transposed: Tensor, cut: Blocks) -> Tensor:
    """The input transform B^T d B: `[n, block, point, group, tile, channel]`."""
    n, g, groups, _, lanes = transposed.buffer.shape
    transforms, m = cut.transforms, cut.transforms.outputs
    points = transforms.points
    shape = (n, g, as_expr(points**2), groups, as_expr(cut.tiles | 1), lanes)
    made = Buffer("image", f32, shape)

    def body(at: Indices) -> list[tuple[Indices, Expr]]:
        *before, group, i, j, c = at
        tile = i * cut.across + j

        def pixel(y: int, x: int) -> Expr:
            return transposed[
                (*before, group, (i * m + y) * cut.pitch + (j * m + x), c)
            ]

        return transformed(
            transforms.image, pixel, lambda p: (*before, p, group, tile, c)
        )

    sizes = (n, g, groups, *extents(cut.rows, cut.across), lanes)
    return multi_store(made, ("b", "g", "cg", "i", "j", "c"), sizes, body, transposed)


def sums(image: Tensor, weight: Tensor, cut: Blocks) -> Tensor:
    """The matrix product at each point: `[n, block, strip, point, tile, output]`."""
    n, g, points, groups, _, lanes = image.buffer.shape
    tiles = as_expr(cut.tiles)
    strips, _, _, strip = weight.shape
    group, lane = reduce_axis(groups, "cg"), reduce_axis(lanes, "c")

    def element(at: Indices) -> Reduction:
        n, g, s, p, t, o = at
        value = image[n, g, p, group.var, t, lane.var]
        return total(
            value * weight[s, p, group.var * LANES + lane.var, o], (group, lane)
        )

    made: Tensor = staged(
        (n, g, strips, points, tiles, strip),
        ("b", "g", "s", "p", "t", "o"),
        element,
        "sums",
    )
    return made


# -------------------------------------------------------------------- results


def tiles(sums: Tensor, cut: Blocks) -> Tensor:
    """The output transform A^T s A: `[n, block, strip, half, pixel, output]`."""
    n, g, strips, _, _, _ = sums.buffer.shape
    transforms, m = cut.transforms, cut.transforms.outputs
    points, halves = transforms.points, STRIP // LANES
    pixels = cut.lines * cut.line
    made = Buffer("tiles", f32, (n, g, strips, *extents(halves, pixels, LANES)))

    def body(at: Indices) -> list[tuple[Indices, Expr]]:
        *strip, half, i, j, o = at
        tile = i * cut.across + j

        def point(y: int, x: int) -> Expr:
            return sums[(*strip, y * points + x, tile, half * LANES + o)]

        def place(number: int) -> Indices:
            y, x = divmod(number, m)
            return (*strip, half, (i * m + y) * cut.line + (j * m + x), o)

        return transformed(transforms.result, point, place)

    sizes = (n, g, strips, *extents(halves, cut.rows, cut.across, LANES))
    return multi_store(made, ("b", "g", "s", "h", "i", "j", "o"), sizes, body, sums)


def transposed_back(tiles: Tensor) -> Tensor:
    """The tiles transposed to outputs first."""
    n, g, strips, halves, pixels, lanes = tiles.buffer.shape
    made: Tensor = staged(
        (n, g, strips, halves, lanes, pixels),
        ("b", "g", "s", "h", "o", "q"),
        lambda at: tiles[(*at[:4], at[5], at[4])],
        "turned_back",
    )
    return made


def results(
    transposed: Tensor, b: Tensor | None, cut: Blocks, activation: str | None
) -> Tensor:
    """The blocks cropped to the image, with bias and activation."""
    n, g, strips, _, _, _ = transposed.buffer.shape
    y = Buffer("y", f32, (n, *extents(cut.outputs, *cut.results)))
    names = ("b", "g", "s", "h", "o", "i", "j")
    sizes = (
        n,
        g,
        strips,
        *extents(STRIP // LANES, LANES, cut.lines, cut.results[1]),
    )

    def guard(at: Indices) -> Expr | None:
        _, block, s, half, o, i, _ = at
        conditions: list[Expr] = []
        if cut.outputs % STRIP:
            conditions.append(s * STRIP + half * LANES + o < cut.outputs)
        if cut.results[0] % cut.lines:
            conditions.append(block * cut.lines + i < cut.results[0])
        return reduce(and_, conditions) if conditions else None

    def body(at: Indices) -> list[tuple[Indices, Expr]]:
        image, block, s, half, o, i, j = at
        output = s * STRIP + half * LANES + o
        value: Expr = transposed[image, block, s, half, o, i * cut.line + j]
        if b is not None:
            value = value + b[output]
        value = activated(value, activation or "none")
        return [((image, output, block * cut.lines + i, j), value)]

    inputs = (transposed,) if b is None else (transposed, b)
    return multi_store(y, names, sizes, body, *inputs, guard=guard)
