"""Depthwise convolutions: register tiles of a few lines by a vector of columns.

for unit in parallel(batch * channels):
    padded = ...                              # one channel: stays in the L1 cache
    for i_0, j_0 in range(...):
        acc = alloc(f32[rows, lanes], scope="register")
        for i_1, ky, kx in unrolled(...):
            for lane in vectorized(lanes): acc[...] += padded[...] * w[...]
        y[...] = acc[...]

Neighbouring lines read overlapping lines of the image: shared loads happen once.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from tensorlang.ir.contents import blocks
from tensorlang.ir.nodes import Block, Load, Store
from tensorlang.ir.visit import walk
from tensorlang.schedules.conv_tiles import (
    over,
    vector_image,
    vector_lines,
    width,
    write_back,
)
from tensorlang.schedules.generic import generic
from tensorlang.schedules.tiling import cut_at, extent, parallelize
from tensorlang.scheduling import Knobs, Schedule, schedule
from tensorlang.scheduling.tree import constant, find_buffer

_ROWS: Final = (1, 2, 3, 4, 5, 6, 7, 8)
_MOST_TAPS: Final = 128  # unrolled products of a tile


@schedule("conv", algorithm="depthwise")
def depthwise(s: Schedule, knobs: Knobs) -> None:
    """Channels to threads; within each, register tiles of lines by columns."""
    names = [block.name for block in blocks(s.function)]
    done = {"padded", "sums"}
    if "sums" in names:
        shown = next((b.name for b in blocks(s.function) if "sums" in _read(b)), "")
        done |= {shown}
        _forward(s, shown, "padded" in names, knobs)
    if {"part", "rest"} & set(names):
        done |= depthwise_weights(s, names, knobs)
    if set(names) - done:
        generic(s, knobs)


def _read(block: Block) -> set[str]:
    """The names of the buffers that a block reads."""
    return {node.buffer.name for node in walk(block) if isinstance(node, Load)} - {
        node.buffer.name for node in walk(block) if isinstance(node, Store)
    }


def _forward(s: Schedule, result: str, copied: bool, knobs: Knobs) -> None:
    """Tiles of lines by columns for the sums, then the blocks computed from them."""
    lanes, _ = width(s)
    shown = result or "sums"
    rank = len(find_buffer(s.function, "sums").shape) - 2
    batch, group, *place = s.loops(shown)[: rank + 2]
    taps = s.loops("sums")[rank + 2 :]
    tall = rank > 1
    if tall:
        rows = _rows(s, place[-2], taps, knobs)
        some, one = s.split(place[-2], [None, rows])
        if result:
            s.compute_at("sums", some)
            tall = rows > 1
            one = s.loops("sums")[-len(taps) - 2]
        if tall:
            column, *folded = s.loops("sums")[-len(taps) - 1 :]
            s.reorder(column, one, *folded)
    elif result:
        s.compute_at("sums", group)
    _tiles(s, lanes, len(taps), tall=tall)
    if result:
        vector_lines(s, shown, lanes)
    if copied:
        s.compute_at("padded", group)
        vector_image(s, "padded", lanes)
    parallelize(s, [batch, group])


def depthwise_weights(s: Schedule, names: Sequence[str], knobs: Knobs) -> set[str]:
    """Weight gradients of each image: a vector for every window element.

    Lines are tiled, as neighbouring ones read overlapping lines of the image. Returns
    the names of the blocks it has scheduled.
    """
    pairs = [p for p in (("part", "each"), ("rest", "ends")) if p[0] in names]
    top = "both" if "both" in names else pairs[0][1]
    rank = len(find_buffer(s.function, top).shape) - 2
    batch, group, *window = s.loops(top)[: rank + 2]
    for _, folded in pairs:
        if folded != top:
            s.compute_at(folded, group)
    for part, folded in pairs:
        s.compute_at(part, group)
        _window_lanes(s, part, group, rank, knobs)
        around = s.loops(folded).index(group) + 1
        for loop in s.loops(folded)[around:-1]:
            s.unroll(loop)
        s.vectorize(s.loops(folded)[-1])
    if "both" in names:
        for loop in window:
            s.unroll(loop)
    if "image" in names:
        s.compute_at("image", group)
        vector_image(s, "image", width(s, pairs[0][0])[0])
    parallelize(s, [batch, group])
    return {"image", "part", "rest", "each", "ends", "both"}


def _window_lanes(s: Schedule, part: str, group: str, rank: int, knobs: Knobs) -> None:
    """Registers for all window elements, or only the last dimension's if too many."""
    _, registers = width(s, part)
    own = s.loops(part)[s.loops(part).index(group) + 1 :]
    folded = over(s, part)
    spatial = own[: len(own) - len(folded)]
    lines, step = folded[: rank - 1], folded[rank - 1 :]
    wide = constant(find_buffer(s.function, part).shape[-1]) != 1
    taps, lane = (spatial[:-1], spatial[-1:]) if wide else (spatial, ())
    first = next(
        at
        for at in range(len(taps) + 1)
        if at >= len(taps) - 1 or prod(_extents(s, taps[at:])) <= registers - 8
    )
    around, inner = taps[:first], taps[first:]
    rows = _rows(s, lines[-1], inner, knobs, "lines") if lines else 1
    together: tuple[str, ...] = ()
    if rows > 1:
        some, one = s.split(lines[-1], [None, rows])
        lines, together = (*lines[:-1], some), (one,)
    s.reorder(*around, *lines, *step, *together, *inner, *lane)
    at = around[-1] if around else group
    write, _ = s.cache_write(part, part, "register", at=at)
    back = s.loops(write)[s.loops(write).index(at) + 1 :]
    for loop in (*together, *inner, *(back[:-1] if wide else back)):
        s.unroll(loop)
    for loop in (*lane, *back[-1:]) if wide else ():
        s.vectorize(loop)


def _extents(s: Schedule, loops: Sequence[str]) -> list[int]:
    return [extent(s, loop) or 1 for loop in loops]


def _rows(
    s: Schedule, line: str, taps: Sequence[str], knobs: Knobs, name: str = "rows"
) -> int:
    """Lines of a tile: the most that divide all lines and can be unrolled."""
    lines = extent(s, line) or 1
    count = prod(extent(s, loop) or 1 for loop in taps)
    fit = [n for n in _ROWS if lines % n == 0]
    best = max((n for n in fit if n <= 4 and n * count <= _MOST_TAPS), default=1)
    return knobs.choice(name, fit, default=best)


def _tiles(s: Schedule, lanes: int, taps: int, *, tall: bool) -> None:
    """Tiles over the columns, and a narrower one for the remainder."""
    at = -taps - 2 if tall else -taps - 1
    column = s.loops("sums")[at]
    length = extent(s, column) or 1
    whole = length // lanes * lanes
    parts = cut_at(s, "sums", column, whole) if 0 < whole < length else ["sums"]
    for part in parts:
        loops = s.loops(part)
        column, inner = loops[at], loops[at:][1:]
        count = min(lanes, extent(s, column) or 1)
        around, lane = s.split(column, [None, count])
        s.reorder(around, *inner, lane)
        write, _ = s.cache_write(part, "sums", "register", at=around)
        written = prod(extent(s, loop) or 1 for loop in inner)
        for loop in inner if written <= _MOST_TAPS else inner[-1:]:
            s.unroll(loop)
        s.vectorize(lane)
        write_back(s, write, around, count)
