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
weight to a few vectors of pixels. Only the weights of image gradients, which are many,
are packed, one tile at a time: rows of outputs are its columns.

Georganas et al., "Anatomy of high-performance deep learning convolutions on SIMD
architectures", 2018.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from tensorlang.ir.contents import blocks
from tensorlang.ir.nodes import Block, Load, Var
from tensorlang.ir.visit import walk
from tensorlang.schedules.conv_tiles import (
    Tile,
    copied_image,
    extents,
    tile_cost,
    tiles,
    vector_lines,
    width,
)
from tensorlang.schedules.generic import generic
from tensorlang.schedules.outer_products import outer_products
from tensorlang.schedules.tiling import divisors, extent, parallelize
from tensorlang.scheduling import Knobs, Schedule, schedule
from tensorlang.scheduling.linear import linear
from tensorlang.scheduling.tree import block_of, find_block

_MOST_ROWS: Final = 14
_VECTORS: Final = (1, 2, 3, 4, 5, 6, 8)
_ENOUGH_UNITS: Final = 8
_MOST_COPIES: Final = 128  # weight copies that are unrolled
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
        for rows in range(1, _MOST_ROWS + 1)
        for vectors in _VECTORS
        if work.outputs % rows == 0 and (rows + 1) * vectors + 2 <= registers
    ]
    cuts = work.cuts

    def cost(choice: tuple[Tile, int]) -> tuple[float, int]:
        tile, lines = choice
        chunks = work.lines // lines
        span = work.span(lines)
        count = chunks * (work.outputs // tile.rows)
        few = 1.0 if count * units >= _ENOUGH_UNITS else 1.1
        large = 1.05 if 4 * tile.rows * span > _SCRATCH else 1.0
        each = tile_cost(span, tile, work.steps) + 200
        return count * each * few * large, -lines

    return min(((tile, lines) for tile in tiles for lines in cuts), key=cost)


@schedule("conv", algorithm="flat")
def flat(s: Schedule, knobs: Knobs) -> None:
    """Register tiles of outputs by flattened pixels."""
    names = [block.name for block in blocks(s.function)]
    packed = "turned" in names and "wide" not in names and bool(_readers(s))
    for name in ("wide",) if packed else ("turned", "wide"):
        if name in names:
            parallelize(s, s.loops(name)[:1])
    if "flat" in names:
        copied_image(s, "flat")
    done = {"turned", "wide", "flat", "sums"}
    if "part" in names:
        done |= weights(s, names, knobs)
    if "products" in names:
        done |= outer_products(s, names, knobs)
    if "sums" in names:
        _forward(s, names, knobs)
    readers = {b.name for b in blocks(s.function) if "sums" in _read(b)}
    if set(names) - done - readers:
        generic(s, knobs)


def _forward(s: Schedule, names: Sequence[str], knobs: Knobs) -> None:
    """Register tiles of the sums, and the blocks computed from them."""
    readers = _readers(s)
    if readers:
        _lines(s, readers[0], knobs, padded="flat" in names)
    else:
        _pixels(s, knobs)


def _readers(s: Schedule) -> list[str]:
    """The names of the blocks that read the sums."""
    return [b.name for b in blocks(s.function) if "sums" in _read(b)]


def _read(block: Block) -> set[str]:
    """The names of the buffers that a block reads."""
    return {node.buffer.name for node in walk(block) if isinstance(node, Load)}


# ----------------------------------------------------------------------- sums


def _chosen(s: Schedule, knobs: Knobs, work: Work, units: int) -> tuple[Tile, int]:
    """The tile and the lines per unit: knobs, by default the cheapest."""
    lanes, registers = width(s)
    tile, lines = choose(work, lanes, registers, units)
    fit = [n for n in range(1, _MOST_ROWS + 1) if work.outputs % n == 0]
    rows = knobs.choice("rows", fit, default=tile.rows)
    vectors = knobs.choice("vectors", _VECTORS, default=tile.vectors)
    lines = knobs.choice("lines", work.cuts, default=lines)
    return Tile(rows, vectors, lanes), lines


def _lines(s: Schedule, result: str, knobs: Knobs, *, padded: bool) -> None:
    """Units of outputs by lines: compute the sums, then extract the results."""
    _, *inner = s.loops("sums")
    rank = len(_taps(s))
    outer = s.loops(result)[:-rank]
    place = s.loops(result)[-rank:]
    batch, *groups, output = outer
    pitch, lines = _pitch(s, result, place), extent(s, place[0]) or 1
    rest = extents(s, place[1:])
    last = sum((n - 1) * p for n, p in zip(rest, pitch[1:], strict=True)) + 1
    steps = prod(extents(s, inner[-rank - 1 :]))
    work = Work(extent(s, output) or 1, lines, pitch[0], last, steps)
    units = prod(extents(s, groups))
    tile, lines = _chosen(s, knobs, work, units)
    some, one = s.split(output, [None, tile.rows])
    several, line = s.split(place[0], [None, lines])
    s.reorder(batch, *groups, some, several, one, line, *place[1:])
    s.compute_at("sums", several)
    tiles(s, tile, work.span(lines), padded=padded)
    vector_lines(s, result, tile.lanes)
    names = {block.name for block in blocks(s.function)}
    if "turned" in names and "wide" not in names:
        _pack(s, several)
    parallelize(s, [batch, *groups, some, several])


def _pack(s: Schedule, at: str) -> None:
    """Pack the weights for a tile's outputs, transposed, right where they are used.

    Each input's weights for all outputs of a tile are contiguous and read once.
    """
    s.compute_at("turned", at)
    loops = s.loops("turned")[s.loops("turned").index(at) + 1 :]
    if len(loops) > len(_taps(s)) + 1:
        output, channel, *taps = loops
        s.reorder(channel, output, *taps)
        loops = (channel, output, *taps)
    written = prod(extents(s, loops[1:]))
    for loop in loops[1:] if written <= _MOST_COPIES else loops[-1:]:
        s.unroll(loop)


def _taps(s: Schedule) -> tuple[str, ...]:
    """Loops over a window."""
    block = block_of(find_block(s.function, "sums"))
    folded = {a.value for a in block.axes if a.kind == "reduction"}
    names = [v.name for v in folded if isinstance(v, Var)]
    return tuple(loop for loop in s.loops("sums") if loop in names)[1:]


def _pitch(s: Schedule, result: str, place: Sequence[str]) -> list[int]:
    """Elements of the sums between neighbouring results, per dimension."""
    block = block_of(find_block(s.function, result))
    load = next(
        n for n in walk(block) if isinstance(n, Load) and n.buffer.name == "sums"
    )
    steps = dict(linear(load.indices[-1]).terms)
    axes = {a.value.name: a.var for a in block.axes if isinstance(a.value, Var)}
    return [steps[axes[loop]] if loop in axes else 1 for loop in place]


def _pixels(s: Schedule, knobs: Knobs) -> None:
    """Single-pixel windows: the sums are the results, without gaps."""
    batch, *groups, output, q, channel, tap = s.loops("sums")
    length, steps = extent(s, q) or 1, extent(s, channel) or 1
    work = Work(extent(s, output) or 1, 1, length, length, steps)
    tile, _ = _chosen(s, knobs, work, _ENOUGH_UNITS)
    some, one = s.split(output, [None, tile.rows])
    s.reorder(batch, *groups, some, one, q, channel, tap)
    tiles(s, tile, length, padded=False, around=[batch, *groups, some])


# -------------------------------------------------------------------- weights


def weights(s: Schedule, names: Sequence[str], knobs: Knobs) -> set[str]:
    """Weight gradients: tiles of outputs, inputs and a window's columns.

    Each step multiplies a vector of each output's row by one of each input's and
    column's; the lanes are summed at the end of the rows. Returns the names of the
    blocks it has scheduled.
    """
    for name in ("image", "spaced"):
        if name in names:
            copied_image(s, name)
    *outer, lane = s.loops("dw")
    own = [loop for loop in outer if loop.partition("_")[0] in ("g", "o", "c")]
    window = outer[len(own) :]
    *groups, output, channel = own
    rows, columns = _weight_tile(s, output, channel, window[-1], knobs)
    some, one = s.split(output, [None, rows])
    several, each = s.split(channel, [None, columns])
    around = [*groups, some, several, *window[:-1]]
    inner = [one, each, window[-1]]
    s.reorder(*around, *inner, lane)
    s.compute_at("part", around[-1])
    place = s.loops("part").index(around[-1]) + 1
    *tile, lanes, batch, step = s.loops("part")[place:]
    s.reorder(batch, step, *tile, lanes)
    write, _ = s.cache_write("part", "part", "register", at=around[-1])
    back = s.loops(write)[place:]
    for loop in (*tile, *back[:-1], *inner):
        s.unroll(loop)
    for loop in (lanes, back[-1], lane):
        s.vectorize(loop)
    parallelize(s, around)
    return {"image", "spaced", "part", "dw"}


def _weight_tile(
    s: Schedule, output: str, channel: str, tap: str, knobs: Knobs
) -> tuple[int, int]:
    """Outputs and inputs of a tile: the most products per load."""
    _, registers = width(s, "part")
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
