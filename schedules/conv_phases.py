"""Transposed convolutions by phases: register tiles of each, then interleaved.

for unit in parallel(batch * outputs // rows * lines // R):
    sums, sums_1, ... = alloc(f32[phases, rows, R * pitch])
    for phase, q_0 in range(...):             # of each part, in register tiles
        acc = alloc(f32[rows, vectors * lanes], scope="register")
        ...
    for o, u in range(...):
        for t, r in unrolled(strides):        # a line of each phase
            for lane in vectorized(lanes): y[...] = sums[...]

The stores of all phases of a line are adjacent and combine into one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from tensorlang.ir.nodes import Binary, Const
from tensorlang.ir.visit import walk
from tensorlang.schedules.conv_tiles import (
    Tile,
    copied_image,
    extents,
    over,
    tile_cost,
    tiles,
    width,
)
from tensorlang.schedules.products import Product, makers, only, readers
from tensorlang.schedules.tiling import cut_at, divisors, extent, parallelize
from tensorlang.scheduling import Knobs, Schedule
from tensorlang.scheduling.tree import block_of, find_block

_MOST_ROWS: Final = 14
_VECTORS: Final = (1, 2, 3, 4, 5, 6, 8)
_ENOUGH_UNITS: Final = 8
_SCRATCH: Final = 1 << 18  # bytes of sums in a thread's working set
_MOST_INTERLEAVED: Final = 8  # stores that can be combined into one


@dataclass(frozen=True, slots=True)
class _Work:
    """Problem size as tiling sees it.

    Attributes:
        outputs: Output channels of a group.
        lines: Lines of a phase.
        line: Elements from one line to the next.
        cuts: Numbers of lines that a unit of work may have.
        parts: Phases and products per sum, of each part.
        units: Units of work besides those over lines and outputs.
    """

    outputs: int
    lines: int
    line: int
    cuts: Sequence[int]
    parts: Sequence[tuple[int, int]]
    units: int

    @property
    def rows(self) -> list[int]:
        """Numbers of rows that a tile may have."""
        return [n for n in range(1, _MOST_ROWS + 1) if self.outputs % n == 0]


def forward(s: Schedule, knobs: Knobs, sums: Sequence[Product]) -> set[str]:
    """Register tiles for each phase, then the image interleaved from all of them."""
    first, names = sums[0], [product.name for product in sums]
    copies = [maker.name for maker in makers(s, first.image.buffer)]
    weights = [maker.name for maker in makers(s, first.other.buffer)]
    for name in weights:
        parallelize(s, s.loops(name)[:1])
    for name in copies:
        copied_image(s, name)
    result = only(readers(s, *names), "reader of the phases")
    _phases(s, result, sums, knobs)
    return {*weights, *copies, result, *names}


def _phases(s: Schedule, result: str, sums: Sequence[Product], knobs: Knobs) -> None:
    """Units of outputs by lines, over all phases."""
    rank, tall = sums[0].rank, not sums[0].depthwise
    outer, place = s.loops(result)[:-rank], s.loops(result)[-rank:]
    strides = _strides(s, result, place)
    batch, *groups = outer
    work = _work(s, sums, place, strides, groups)
    tile, lines = _chosen(s, sums[0].name, knobs, work)
    around, inside = list(outer), []
    if tall:
        some, one = s.split(groups[-1], [None, tile.rows])
        around, inside = [batch, *groups[:-1], some], [one]
    if lines < work.lines:
        several, line = s.split(place[0], [None, lines * strides[0]])
        around, place = [*around, several], (line, *place[1:])
    s.reorder(*around, *inside, *place)
    for product in sums:
        name = product.name
        s.compute_at(name, around[-1])
        span = extent(s, s.loops(name)[-len(over(s, name)) - 1]) or 1
        tiles(s, name, tile, span, padded=True)
    _interleaved(s, result, place, strides, tile.lanes)
    parallelize(s, around)


def _strides(s: Schedule, result: str, place: Sequence[str]) -> list[int]:
    """Phases along each dimension: the moduli applied to pixel indices."""
    block = block_of(find_block(s.function, result))
    axes = {axis.value: axis.var for axis in block.axes}
    named = {v.name: var for v, var in axes.items() if hasattr(v, "name")}
    found = {
        n.a: int(n.b.value)
        for n in walk(block)
        if isinstance(n, Binary) and n.op == "floormod" and isinstance(n.b, Const)
    }
    return [found.get(named[loop], 1) if loop in named else 1 for loop in place]


def _work(
    s: Schedule,
    sums: Sequence[Product],
    place: Sequence[str],
    strides: Sequence[int],
    groups: Sequence[str],
) -> _Work:
    size, tall = extent(s, place[0]) or 1, not sums[0].depthwise
    lines = -(-size // strides[0])
    length = extent(s, sums[0].places[-1]) or 1
    whole = size % strides[0] == 0 and len(place) > 1
    cuts = divisors(lines) if whole else [lines]
    rest = zip(extents(s, place[1:]), strides[1:], strict=True)
    if all(n <= step for n, step in rest) and lines > 1:
        cuts = [n for n in cuts if n > 1]  # a single element has no loop
    parts = [
        (prod(extents(s, each.phases)), prod(extents(s, (*each.k, *each.taps))))
        for each in sums
    ]
    outputs = extent(s, groups[-1]) or 1 if tall else 1
    units = prod(extents(s, groups[:-1] if tall else groups))
    return _Work(outputs, lines, length // lines, cuts, parts, units)


def _chosen(s: Schedule, name: str, knobs: Knobs, work: _Work) -> tuple[Tile, int]:
    """The tile and the lines per unit: knobs, by default the cheapest."""
    lanes, registers = width(s, name)

    def cost(choice: tuple[Tile, int]) -> tuple[float, int]:
        tile, lines = choice
        count = work.lines // lines * (work.outputs // tile.rows)
        span = lines * work.line
        sums = 4 * tile.rows * span * sum(phases for phases, _ in work.parts)
        few = 1.0 if count * work.units >= _ENOUGH_UNITS else 1.1
        large = 1.05 if sums > _SCRATCH else 1.0
        each = 200 + sum(
            phases * tile_cost(span, tile, steps) for phases, steps in work.parts
        )
        return count * each * few * large, -lines

    possible = [
        (Tile(rows, vectors, lanes), lines)
        for rows in work.rows
        for vectors in _VECTORS
        for lines in work.cuts
        if (rows + 1) * vectors + 2 <= registers
    ]
    tile, lines = min(possible, key=cost)
    rows = knobs.choice("rows", work.rows, default=tile.rows)
    vectors = knobs.choice("vectors", _VECTORS, default=tile.vectors)
    lines = knobs.choice("phase_lines", work.cuts, default=lines)
    return Tile(rows, vectors, lanes), lines


def _interleaved(
    s: Schedule,
    result: str,
    place: Sequence[str],
    strides: Sequence[int],
    lanes: int,
) -> None:
    """Store a line's results: vectors of each phase, interleaved."""
    for loop, stride in zip(place[:-1], strides, strict=False):
        if 1 < stride <= _MOST_INTERLEAVED and (extent(s, loop) or 1) % stride == 0:
            s.unroll(s.split(loop, [None, stride])[1])
    stride = strides[-1]
    if stride > _MOST_INTERLEAVED:
        return
    column = s.loops(result)[-1]
    length = extent(s, column) or 1
    pixels = length // stride
    parts = []
    block = result
    for size in (pixels // lanes * lanes * stride, pixels % lanes * stride):
        done = length - (extent(s, s.loops(block)[-1]) or 0)
        if size and size + done < length:
            first, block = cut_at(s, block, s.loops(block)[-1], size)
            parts.append((first, size))
        elif size:
            parts.append((block, size))
    for part, size in parts:
        count = min(lanes, size // stride)
        _, lane, phase = s.split(s.loops(part)[-1], [None, count, stride])
        s.reorder(phase, lane)
        s.unroll(phase)
        s.vectorize(lane)
