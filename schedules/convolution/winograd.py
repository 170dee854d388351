"""Winograd convolution: blocks of tiles to threads, all stages fused.

for s, c in parallel(...): transform the weights
for b, g in parallel(images * blocks):
    for cg in range(...):               # 16 channels
        lines[...] = ...; turned[...] = ...; image[...] = ...
    for s in range(...):                # 32 outputs
        for p in range(points):
            for t in tiles of 14: register tiles of sums, 14 x 2 vectors
        tiles[...] = ...; turned_back[...] = ...; y[...] = ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tensorlang.ir.contents import blocks, free_vars
from tensorlang.ir.dtypes import f32
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.nodes import Let, Load
from tensorlang.ir.visit import walk
from tensorlang.schedules.convolution.tiles import vector_lines
from tensorlang.schedules.cost.core import core_of
from tensorlang.schedules.tiling import cut_at, extent, parallelize, write_back, written
from tensorlang.scheduling import Knobs, Schedule, schedule
from tensorlang.scheduling.analysis.tree import block_of, constant, find_block

_LANES: Final = 16
_ROWS: Final = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)
_VECTORS: Final = (1, 2)
_STAGES: Final = 7  # of the images: lines to results


@schedule("conv", algorithm="winograd43")
def winograd43(s: Schedule, knobs: Knobs) -> None:
    """F(4, 3)."""
    _winograd(s, knobs)


@schedule("conv", algorithm="winograd23")
def winograd23(s: Schedule, knobs: Knobs) -> None:
    """F(2, 3)."""
    _winograd(s, knobs)


@schedule("winograd")
def winograd(s: Schedule, knobs: Knobs) -> None:
    """Transform weights alone, or convolve with transformed weights."""
    _winograd(s, knobs)


def _winograd(s: Schedule, knobs: Knobs) -> None:
    """The transform of the weights, if any, before the stages of the images."""
    found = [block.name for block in blocks(s.function)]
    summed = any(a.kind == "reduction" for b in blocks(s.function) for a in b.axes)
    cut = len(found) - (_STAGES if summed else 0)
    if found[:cut]:
        _weights(s, *found[:cut])
    if found[cut:]:
        _images(s, knobs, *found[cut:])


def _images(  # noqa: PLR0917 - the stages, in program order
    s: Schedule,
    knobs: Knobs,
    lines: str,
    turned: str,
    image: str,
    sums: str,
    tiles: str,
    back: str,
    result: str,
) -> None:
    batch, block, group = _merged(s, (lines, turned, image), 3)
    strip = s.loops(sums)[2]
    for name in (sums, tiles, back, result):
        of_batch, of_block, of_strip = s.loops(name)[:3]
        s.merge(batch, of_batch)
        s.merge(block, of_block)
        if of_strip != strip:
            s.merge(strip, of_strip)
    places = {lines: group, turned: group, image: block}
    for name, loop in (places | dict.fromkeys((sums, tiles, back), strip)).items():
        s.store_at(written(s, name), loop)
    _lines(s, lines)
    _transpose(s, turned, -1)
    _transpose(s, back, -2)
    for name in (image, tiles, result):
        vector_lines(s, name, _machine(s)[0])
    _sums(s, sums, knobs)
    parallelize(s, [batch, block])


def _merged(s: Schedule, names: Sequence[str], depth: int) -> tuple[str, ...]:
    """Merge the outer loops of all nests into the first one's."""
    first, *others = names
    kept = s.loops(first)[:depth]
    for name in others:
        for loop, own in zip(kept, s.loops(name)[:depth], strict=True):
            s.merge(loop, own)
    return tuple(kept)


def _weights(s: Schedule, lines: str, turned: str, weight: str, *zeros: str) -> None:
    """Vectors of outputs by vectors of inputs, a window at a time."""
    strip, group, half = _merged(s, (lines, turned, weight), 3)
    for name in (lines, turned):
        s.store_at(written(s, name), half)
    vector_lines(s, lines, _machine(s)[0])
    _transpose(s, turned, -1)
    for name in (weight, *zeros):
        vector_lines(s, name, _machine(s)[0])
    parallelize(s, [strip, group])


def _lines(s: Schedule, part: str) -> None:
    """Image columns in vectors, with the zero padding around them split off."""
    low, size = _columns_of_image(s, part)
    column = s.loops(part)[-1]
    length = extent(s, column) or 1
    if low:
        part = cut_at(s, part, column, min(low, length))[-1]
    inner = min(size, length - low)
    if inner > 0:
        if low + inner < length:
            rest = cut_at(s, part, s.loops(part)[-1], inner)[-1]
            vector_lines(s, rest, _machine(s)[0])
        vector_lines(s, part, _machine(s)[0])


def _columns_of_image(s: Schedule, name: str) -> tuple[int, int]:
    """Left padding of the image's lines, and its columns."""
    block = block_of(find_block(s.function, name))
    (x,) = {n.buffer for n in walk(block) if isinstance(n, Load)}
    column = block.axes[-1].var
    lets = [n.value for n in walk(block) if isinstance(n, Let)]
    place = [value for value in (column, *lets) if column in free_vars(value)][-1]
    return -linear(place).constant, constant(x.shape[-1]) or 0


def _machine(s: Schedule) -> tuple[int, int]:
    """Lanes of a register, at most `_LANES`, and the number of registers."""
    core = core_of(s.target, f32)
    return min(core.lanes, _LANES), core.registers


def _transpose(s: Schedule, name: str, lane_at: int) -> None:
    """Squares transposed in registers, and the remaining pixels.

    Args:
        name: The block.
        lane_at: Which of its last two loops becomes the vector: -1 or -2.
    """
    pixel, lane = s.loops(name)[-1 - (lane_at == -1)], s.loops(name)[lane_at]
    s.reorder(pixel, lane)
    parts, sides = [name], (_LANES, 8) if _machine(s)[0] == _LANES else (8,)
    for side in sides:
        rest = extent(s, s.loops(parts[-1])[-2]) or 1
        whole = rest // side * side
        if 0 < whole < rest:
            parts += cut_at(s, parts[-1], s.loops(parts[-1])[-2], whole)[1:]
    for part in parts:
        pixel, lane = s.loops(part)[-2:]
        length = extent(s, pixel) or 1
        side = next((n for n in sides if length % n == 0), 0)
        if not side:
            s.vectorize(lane)
            continue
        around, pixel_in = s.split(pixel, [None, side])
        halves, lane_in = s.split(lane, [None, side])
        inner = (lane_in, pixel_in) if lane_at == -1 else (pixel_in, lane_in)
        s.reorder(around, halves, *inner)
        s.tensorize(inner[0], f"transpose_{side}x{side}xf32")


def _sums(s: Schedule, name: str, knobs: Knobs) -> None:
    """Register tiles of Winograd tiles by outputs."""
    lanes, registers = _machine(s)
    vectors = knobs.choice("vectors", _VECTORS, default=2)
    tile = s.loops(name)[-4]
    length = extent(s, tile) or 1
    most = max((registers - vectors - 2) // vectors, 1)
    rows = knobs.choice("rows", _ROWS, default=_tall(length, min(most, _ROWS[-1])))
    parts = [name]
    if length > rows and length % rows:
        parts = cut_at(s, name, tile, length // rows * rows)
    for part in parts:
        tile, output, group, channel = s.loops(part)[-4:]
        some, one = s.split(tile, [None, min(rows, extent(s, tile) or 1)])
        around, vector, lane = s.split(output, [None, vectors, lanes])
        s.reorder(around, some, group, channel, one, vector, lane)
        write, _ = s.cache_write(part, written(s, part), "register", at=some)
        for loop in (one, vector):
            s.unroll(loop)
        s.vectorize(lane)
        write_back(s, write, some, lanes)


def _tall(length: int, most: int) -> int:
    """Rows of a register tile, as even as possible."""
    return -(-length // -(-length // most))
