"""Fused Winograd convolution, with plain or transformed weights, by blocks of tiles.

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

from collections.abc import Callable
from functools import reduce
from operator import and_

from tensorlang import ir
from tensorlang.ops.nn.convolution_problem import Problem
from tensorlang.ops.nn.epilogues import activated
from tensorlang.ops.nn.images import source, staged
from tensorlang.ops.nn.multi_store import Indices, extents, multi_store
from tensorlang.ops.nn.winograd_blocks import LANES, STRIP, Blocks, blocks
from tensorlang.ops.nn.winograd_matrices import TRANSFORMS
from tensorlang.ops.nn.winograd_products import transformed
from tensorlang.ops.nn.winograd_weights import weights


def conv(m: int) -> Callable[..., ir.Tensor]:
    """As `convolution_definitions.conv`, for 3x3 windows with stride 1: F(m, 3)."""

    def define(
        x: ir.Tensor,
        w: ir.Tensor,
        b: ir.Tensor | None,
        p: Problem,
        activation: str | None,
        *,
        addend: ir.Tensor | None = None,
    ) -> ir.Tensor:
        transformed = weights(w, TRANSFORMS[m])
        return convolved(x, transformed, b, blocks(m, p), activation, addend=addend)

    return define


def convolved(
    x: ir.Tensor,
    weight: ir.Tensor,
    b: ir.Tensor | None,
    cut: Blocks,
    activation: str | None,
    *,
    addend: ir.Tensor | None = None,
) -> ir.Tensor:
    """The convolution with transformed weights.

    Args:
        x: Images `[n, c, h, w]`.
        weight: Result of `winograd_weights.weights`.
        b: Bias `[o]`, or None.
        cut: The blocking.
        activation: Name of the activation.
        addend: Added before it, of the result's shape.
    """
    padded = image(transposed(lines(x, cut, weight)), cut)
    results = tiles(sums(padded, weight, cut), cut)
    return finished(transposed_back(results), b, cut, activation, addend)


# ---------------------------------------------------------------------- image


def lines(x: ir.Tensor, cut: Blocks, weight: ir.Tensor) -> ir.Tensor:
    """The lines of the padded image that a block needs, flattened, by channel group.

    Weights are computed first, so that all later stages fuse into one nest.
    """
    length = cut.height * cut.pitch

    def element(at: Indices) -> ir.Expr:
        n, g, group, c, line, column = at
        channel, inside = group * LANES + c, ir.as_expr(True)
        if cut.inputs % LANES:
            inside = channel < cut.inputs
            channel = ir.binary("min", channel, ir.as_expr(cut.inputs - 1))
        row, above = source(g * cut.lines + line - cut.low[0], cut.size[0])
        at_column, beside = source(column - cut.low[1], cut.size[1])
        value = x[n, channel, row, at_column]
        return ir.select(inside & above & beside, value, ir.as_expr(0.0, ir.f32))

    groups = -(-cut.inputs // LANES)
    shape = (x.buffer.shape[0], *extents(cut.count, groups, LANES, length))
    made = ir.Buffer("lines", ir.f32, shape)
    sizes = (
        x.buffer.shape[0],
        *extents(cut.count, groups, LANES, cut.height, cut.pitch),
    )

    def body(at: Indices) -> list[tuple[Indices, ir.Expr]]:
        *outer, line, column = at
        return [((*outer, line * cut.pitch + column), element(at))]

    return multi_store(made, ("b", "g", "cg", "c", "i", "j"), sizes, body, weight, x)


def transposed(lines: ir.Tensor) -> ir.Tensor:
    """The lines transposed to channels last."""
    n, g, groups, lanes, length = lines.buffer.shape
    return staged(
        (n, g, groups, length, lanes),
        ("b", "g", "cg", "q", "c"),
        lambda at: lines[(*at[:3], at[4], at[3])],
        "turned",
    )


def image(transposed: ir.Tensor, cut: Blocks) -> ir.Tensor:
    """The input transform B^T d B: `[n, block, point, group, tile, channel]`."""
    n, g, groups, _, lanes = transposed.buffer.shape
    transforms, m = cut.transforms, cut.transforms.outputs
    points = transforms.points
    shape = (n, g, ir.as_expr(points**2), groups, ir.as_expr(cut.tiles | 1), lanes)
    made = ir.Buffer("image", ir.f32, shape)

    def body(at: Indices) -> list[tuple[Indices, ir.Expr]]:
        *before, group, i, j, c = at
        tile = i * cut.across + j

        def pixel(y: int, x: int) -> ir.Expr:
            return transposed[
                (*before, group, (i * m + y) * cut.pitch + (j * m + x), c)
            ]

        return transformed(
            transforms.image, pixel, lambda p: (*before, p, group, tile, c)
        )

    sizes = (n, g, groups, *extents(cut.rows, cut.across), lanes)
    return multi_store(made, ("b", "g", "cg", "i", "j", "c"), sizes, body, transposed)


def sums(image: ir.Tensor, weight: ir.Tensor, cut: Blocks) -> ir.Tensor:
    """The matrix product at each point: `[n, block, strip, point, tile, output]`."""
    n, g, points, groups, _, lanes = image.buffer.shape
    tiles = ir.as_expr(cut.tiles)
    strips, _, _, strip = weight.shape
    group, lane = ir.reduce_axis(groups, "cg"), ir.reduce_axis(lanes, "c")

    def element(at: Indices) -> ir.Reduction:
        n, g, s, p, t, o = at
        value = image[n, g, p, group.var, t, lane.var]
        return ir.sum(
            value * weight[s, p, group.var * LANES + lane.var, o], (group, lane)
        )

    return staged(
        (n, g, strips, points, tiles, strip),
        ("b", "g", "s", "p", "t", "o"),
        element,
        "sums",
    )


# -------------------------------------------------------------------- results


def tiles(sums: ir.Tensor, cut: Blocks) -> ir.Tensor:
    """The output transform A^T s A: `[n, block, strip, half, pixel, output]`."""
    n, g, strips, _, _, _ = sums.buffer.shape
    transforms, m = cut.transforms, cut.transforms.outputs
    points, halves = transforms.points, STRIP // LANES
    pixels = cut.lines * cut.line
    made = ir.Buffer("tiles", ir.f32, (n, g, strips, *extents(halves, pixels, LANES)))

    def body(at: Indices) -> list[tuple[Indices, ir.Expr]]:
        *strip, half, i, j, o = at
        tile = i * cut.across + j

        def point(y: int, x: int) -> ir.Expr:
            return sums[(*strip, y * points + x, tile, half * LANES + o)]

        def place(number: int) -> Indices:
            y, x = divmod(number, m)
            return (*strip, half, (i * m + y) * cut.line + (j * m + x), o)

        return transformed(transforms.result, point, place)

    sizes = (n, g, strips, *extents(halves, cut.rows, cut.across, LANES))
    return multi_store(made, ("b", "g", "s", "h", "i", "j", "o"), sizes, body, sums)


def transposed_back(tiles: ir.Tensor) -> ir.Tensor:
    """The tiles transposed to outputs first."""
    n, g, strips, halves, pixels, lanes = tiles.buffer.shape
    return staged(
        (n, g, strips, halves, lanes, pixels),
        ("b", "g", "s", "h", "o", "q"),
        lambda at: tiles[(*at[:4], at[5], at[4])],
        "turned_back",
    )


def finished(
    transposed: ir.Tensor,
    b: ir.Tensor | None,
    cut: Blocks,
    activation: str | None,
    addend: ir.Tensor | None,
) -> ir.Tensor:
    """The blocks cropped to the image, with bias, addend and activation."""
    n, g, strips, _, _, _ = transposed.buffer.shape
    y = ir.Buffer("y", ir.f32, (n, *extents(cut.outputs, *cut.results)))
    names = ("b", "g", "s", "h", "o", "i", "j")
    sizes = (n, g, strips, *extents(STRIP // LANES, LANES, cut.lines, cut.results[1]))

    def guard(at: Indices) -> ir.Expr | None:
        _, block, s, half, o, i, _ = at
        conditions: list[ir.Expr] = []
        if cut.outputs % STRIP:
            conditions.append(s * STRIP + half * LANES + o < cut.outputs)
        if cut.results[0] % cut.lines:
            conditions.append(block * cut.lines + i < cut.results[0])
        return reduce(and_, conditions) if conditions else None

    def body(at: Indices) -> list[tuple[Indices, ir.Expr]]:
        image, block, s, half, o, i, j = at
        output = s * STRIP + half * LANES + o
        value: ir.Expr = transposed[image, block, s, half, o, i * cut.line + j]
        if b is not None:
            value = value + b[output]
        place = image, output, block * cut.lines + i, j
        if addend is not None:
            value = value + addend[place]
        return [(place, activated(value, activation or "none"))]

    inputs = [each for each in (transposed, b, addend) if each is not None]
    return multi_store(y, names, sizes, body, *inputs, guard=guard)
