"""Convolutions on flattened images: register tiles of outputs by vectors of pixels.

for unit in parallel(batch * lines // R * outputs // rows):
    sums = alloc(f32[rows, R * pitch])
    for q_0 in range(...):
        acc = alloc(f32[rows, vectors * lanes], scope="register")
        for c, ky, kx in range(...):
            for o in unrolled(rows):
                for v in unrolled(vectors):
                    for lane in vectorized(lanes): acc[...] += image[...] * w[...]
    y[...] = sums[...]          # drops the elements between the lines

Each output of a tile reads its own row of weights sequentially and broadcasts each
weight to a few vectors of pixels.

Georganas et al., "Anatomy of high-performance deep learning convolutions on SIMD
architectures", 2018.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from tensorlang.ir.nodes import Var
from tensorlang.schedules.conv_tiles import (
    Tile,
    copied_image,
    extents,
    tile_cost,
    tiles,
    vector_lines,
    width,
)
from tensorlang.schedules.products import (
    Product,
    loads,
    makers,
    only,
    readers,
    rearranged,
)
from tensorlang.schedules.tiling import cut_at, divisors, extent, parallelize
from tensorlang.scheduling import Knobs, Schedule
from tensorlang.scheduling.linear import linear
from tensorlang.scheduling.tree import block_of, find_block

_MOST_ROWS: Final = 14
_VECTORS: Final = (1, 2, 3, 4, 5, 6, 8)
_ENOUGH_UNITS: Final = 8
_SCRATCH: Final = 40 << 10  # bytes of sums in a thread's working set


@dataclass(frozen=True, slots=True)
class Work:
    """Problem size as tiling sees it.

    Attributes:
        outputs: Output channels of a group.
        lines: Lines of the result.
        pitch: Elements from line to line in the sums.
        last: Elements of a line that are results.
        steps: Products per sum.
    """

    outputs: int
    lines: int
    pitch: int
    last: int
    steps: int

    @property
    def cuts(self) -> list[int]:
        """Divisors of the number of lines whose span exceeds one element, if any."""
        found = divisors(self.lines)
        return [n for n in found if self.span(n) > 1] or found

    @property
    def tile_rows(self) -> list[int]:
        """Outputs of a tile: divisors, or any number where there are none."""
        sizes = range(1, _MOST_ROWS + 1)
        return [n for n in sizes if self.indivisible or self.outputs % n == 0]

    @property
    def indivisible(self) -> bool:
        """Whether no tile of several outputs divides their number."""
        sizes = range(2, _MOST_ROWS + 1)
        return self.outputs > _MOST_ROWS and all(self.outputs % n for n in sizes)

    def unit_outputs(self, rows: int) -> int:
        """Outputs that a unit of work computes, in tiles of this many."""
        return self.outputs if self.outputs % rows else rows

    def span(self, lines: int) -> int:
        """Elements from the first to the last result of this many lines."""
        return (lines - 1) * self.pitch + self.last


def choose(work: Work, lanes: int, registers: int, units: int) -> tuple[Tile, int]:
    """The cheapest tile, and the number of lines per unit of work.

    Args:
        work: The problem size.
        lanes: Elements of a vector register.
        registers: Number of vector registers.
        units: Units of work besides those over lines and outputs.
    """
    tiles = [
        Tile(rows, vectors, lanes)
        for rows in work.tile_rows
        for vectors in _VECTORS
        if (rows + 1) * vectors + 2 <= registers
    ]
    cuts = work.cuts

    def cost(choice: tuple[Tile, int]) -> tuple[float, int]:
        tile, lines = choice
        chunks = work.lines // lines
        span, many = work.span(lines), work.unit_outputs(tile.rows)
        count = chunks * (work.outputs // many)
        few = 1.0 if count * units >= _ENOUGH_UNITS else 1.1
        large = 1.05 if 4 * many * span > _SCRATCH else 1.0
        whole, rest = divmod(many, tile.rows)
        each = whole * tile_cost(span, tile, work.steps) + 200
        if rest:
            each += tile_cost(span, replace(tile, rows=rest), work.steps)
        return count * each * few * large, -lines

    return min(((tile, lines) for tile in tiles for lines in cuts), key=cost)


def forward(s: Schedule, knobs: Knobs, sums: Sequence[Product]) -> set[str]:
    """Register tiles of outputs by flattened pixels."""
    product = only(sums, "convolution")
    result, image = readers(s, product.name), rearranged(s, product.image.buffer)
    weights = [maker.name for maker in makers(s, product.other.buffer)]
    for name in weights:
        parallelize(s, s.loops(name)[:1])
    if image:
        copied_image(s, image)
    if result:
        _lines(s, product, result[0], knobs, padded=bool(image))
    else:
        _pixels(s, product, knobs)
    return {product.name, *weights, *result} | ({image} if image else set())


# ----------------------------------------------------------------------- sums


def _chosen(
    s: Schedule, knobs: Knobs, name: str, work: Work, units: int
) -> tuple[Tile, int]:
    """The tile and the lines per unit: knobs, by default the cheapest."""
    lanes, registers = width(s, name)
    tile, lines = choose(work, lanes, registers, units)
    rows = knobs.choice("rows", work.tile_rows, default=tile.rows)
    vectors = knobs.choice("vectors", _VECTORS, default=tile.vectors)
    lines = knobs.choice("lines", work.cuts, default=lines)
    return Tile(rows, vectors, lanes), lines


def _lines(
    s: Schedule, product: Product, result: str, knobs: Knobs, *, padded: bool
) -> None:
    """Units of outputs by lines: compute the sums, then extract the results."""
    rank = product.rank
    batch, *groups, output = s.loops(result)[:-rank]
    place = s.loops(result)[-rank:]
    pitch, lines = _pitch(s, product, result, place), extent(s, place[0]) or 1
    rest = extents(s, place[1:])
    last = sum((n - 1) * p for n, p in zip(rest, pitch[1:], strict=True)) + 1
    steps = prod(extents(s, (*product.k, *product.taps)))
    work = Work(extent(s, output) or 1, lines, pitch[0], last, steps)
    units = prod(extents(s, groups))
    tile, lines = _chosen(s, knobs, product.name, work, units)
    some, one = s.split(output, [None, work.unit_outputs(tile.rows)])
    several, line = s.split(place[0], [None, lines])
    s.reorder(batch, *groups, some, several, one, line, *place[1:])
    s.compute_at(product.name, several)
    parts = [(product.name, tile.rows)]
    if work.outputs % tile.rows:
        own = len(s.loops(result)) - rank - 1
        parts = _row_parts(s, product.name, s.loops(product.name)[own], tile.rows)
    for block, rows in parts:
        size = replace(tile, rows=rows)
        tiles(s, product.name, size, work.span(lines), padded=padded, block=block)
    vector_lines(s, result, tile.lanes)
    parallelize(s, [batch, *groups, some, several])


def _row_parts(
    s: Schedule, name: str, outputs: str, rows: int
) -> list[tuple[str, int]]:
    """Blocks of whole tiles and of the remaining outputs, with a tile's outputs."""
    count = extent(s, outputs) or 1
    block, rest = cut_at(s, name, outputs, count // rows * rows)
    if count > 2 * rows:
        s.split(outputs, [None, rows])
    return [(block, rows), (rest, count % rows)]


def _pitch(
    s: Schedule, product: Product, result: str, place: Sequence[str]
) -> list[int]:
    """Elements of the sums between neighbouring results, per dimension."""
    block = block_of(find_block(s.function, result))
    (load,) = (load for load in loads(block) if load.buffer == product.output)
    steps = dict(linear(load.indices[-1]).terms)
    axes = {a.value.name: a.var for a in block.axes if isinstance(a.value, Var)}
    return [steps[axes[loop]] if loop in axes else 1 for loop in place]


def _pixels(s: Schedule, product: Product, knobs: Knobs) -> None:
    """Single-pixel windows: the sums are the results, without gaps."""
    batch, *groups, output, q, channel, tap = s.loops(product.name)
    length, steps = extent(s, q) or 1, extent(s, channel) or 1
    work = Work(extent(s, output) or 1, 1, length, length, steps)
    tile, _ = _chosen(s, knobs, product.name, work, _ENOUGH_UNITS)
    some, one = s.split(output, [None, tile.rows])
    s.reorder(batch, *groups, some, one, q, channel, tap)
    around = [batch, *groups, some]
    tiles(s, product.name, tile, length, padded=False, around=around)


# -------------------------------------------------------------------- weights


def weights(s: Schedule, knobs: Knobs, product: Product, dw: str) -> set[str]:
    """Weight gradients: tiles of outputs, inputs and a window's columns.

    Each step multiplies a vector of each output's row by one of each input's and
    column's; the lanes are summed at the end of the rows.
    """
    part, operands = product.name, (product.image.buffer, product.other.buffer)
    copies = [name for buffer in operands if (name := rearranged(s, buffer))]
    for name in copies:
        copied_image(s, name)
    *outer, lane = s.loops(dw)
    rank = len(product.places)
    *groups, output, channel = outer[:-rank]
    window = outer[-rank:]
    rows, columns = _weight_tile(s, part, output, channel, window[-1], knobs)
    some, one = s.split(output, [None, rows])
    several, each = s.split(channel, [None, columns])
    around = [*groups, some, several, *window[:-1]]
    inner = [one, each, window[-1]]
    s.reorder(*around, *inner, lane)
    s.compute_at(part, around[-1])
    place = s.loops(part).index(around[-1]) + 1
    *tile, lanes, batch, step = s.loops(part)[place:]
    s.reorder(batch, step, *tile, lanes)
    write, _ = s.cache_write(part, part, "register", at=around[-1])
    back = s.loops(write)[place:]
    for loop in (*tile, *back[:-1], *inner):
        s.unroll(loop)
    for loop in (lanes, back[-1], lane):
        s.vectorize(loop)
    parallelize(s, around)
    return {*copies, part, dw}


def _weight_tile(  # noqa: PLR0917 - the loops of a tile
    s: Schedule, part: str, output: str, channel: str, tap: str, knobs: Knobs
) -> tuple[int, int]:
    """Outputs and inputs of a tile: the most products per load."""
    _, registers = width(s, part)
    taps = extent(s, tap) or 1
    outputs, channels = extent(s, output) or 1, extent(s, channel) or 1
    rows = [n for n in range(1, _MOST_ROWS + 1) if outputs % n == 0]
    columns = [n for n in range(1, _MOST_ROWS + 1) if channels % n == 0]

    def cost(tile: tuple[int, int]) -> tuple[float, int]:
        row, column = tile
        products = row * column * taps
        if products + min(row, column * taps) + 2 > registers and products > 1:
            return float("inf"), products
        return max(products, 8, row + 2 * column * taps) / products, -products

    best = min(((r, c) for r in rows for c in columns), key=cost)
    return (
        knobs.choice("outputs", rows, default=best[0]),
        knobs.choice("inputs", columns, default=best[1]),
    )
