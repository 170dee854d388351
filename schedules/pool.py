"""Pooling in channels-first layout: vectors of neighbouring windows.

for unit in parallel(images):
    padded = ...                              # one image, where there is padding
    for i, j_0 in range(...):
        acc = alloc(f32[lanes], scope="register")
        for ky, kx in unrolled(...):
            for lane in vectorized(lanes): acc[...] = max(acc[...], x[...])
        y[...] = acc[...]

A vector takes every `stride`-th element of a line: the span needed by all window
elements is loaded contiguously and shuffled in registers.
"""

from __future__ import annotations

from math import prod
from typing import Final

from tensorlang.ir.contents import blocks
from tensorlang.ir.nodes import Load, Var
from tensorlang.ir.visit import walk
from tensorlang.schedules.conv_tiles import (
    vector_image,
    vector_lines,
    width,
    write_back,
)
from tensorlang.schedules.generic import generic
from tensorlang.schedules.tiling import cut_at, extent, parallelize
from tensorlang.scheduling import Knobs, Schedule, schedule
from tensorlang.scheduling.linear import linear
from tensorlang.scheduling.tree import block_of, find_block

_MOST_TAPS: Final = 64  # unrolled window elements
_PLAIN: Final = ({"y"}, {"padded", "y"}, {"sums", "y"}, {"padded", "sums", "y"})


@schedule("pool")
def pool(s: Schedule, knobs: Knobs) -> None:
    """Vectorize windows at a constant stride; schedule the rest generically."""
    names = {block.name for block in blocks(s.function)}
    folded = "sums" if "sums" in names else "y"
    if names not in _PLAIN or not _in_lines(s, folded):
        generic(s, knobs)
        return
    lanes, _ = width(s, folded)
    batch, *place = [loop for loop in s.loops("y") if loop not in _taps(s, "y")]
    around = place[-2] if len(place) > 1 else batch
    taps = len(_taps(s, folded))
    if folded == "sums":
        s.compute_at("sums", around)
    _tiles(s, folded, min(lanes, _columns(s, folded, taps)), taps)
    if folded == "sums":
        vector_lines(s, "y", lanes)
    if "padded" in names:
        s.compute_at("padded", batch)
        vector_image(s, "padded", lanes)
    parallelize(s, [batch] if "padded" in names else [batch, *place[:-1]])


def _taps(s: Schedule, block: str) -> tuple[str, ...]:
    """Loops over a window."""
    axes = block_of(find_block(s.function, block)).axes
    values = [axis.value for axis in axes if axis.kind == "reduction"]
    names = {value.name for value in values if isinstance(value, Var)}
    return tuple(loop for loop in s.loops(block) if loop in names)


def _in_lines(s: Schedule, name: str) -> bool:
    """Whether a line has several windows at a constant stride."""
    block = block_of(find_block(s.function, name))
    taps = len(_taps(s, name))
    column = block.axes[-taps - 1]
    loads = [n for n in walk(block) if isinstance(n, Load)]
    steps = [dict(linear(load.indices[-1]).terms) for load in loads]
    count = extent(s, s.loops(name)[-taps - 1]) or 0
    size = prod(extent(s, loop) or 1 for loop in s.loops(name)[-taps:])
    few = count >= 4 and size <= _MOST_TAPS
    return few and all(column.var in terms for terms in steps)


def _columns(s: Schedule, block: str, taps: int) -> int:
    return extent(s, s.loops(block)[-taps - 1]) or 1


def _tiles(s: Schedule, block: str, lanes: int, taps: int) -> None:
    """Vectors of windows, and a shorter one for the remainder of a line."""
    column = s.loops(block)[-taps - 1]
    length = extent(s, column) or 1
    whole = length // lanes * lanes
    parts = cut_at(s, block, column, whole) if 0 < whole < length else [block]
    for part in parts:
        column, *inner = s.loops(part)[-taps - 1 :]
        count = min(lanes, extent(s, column) or 1)
        around, lane = s.split(column, [None, count])
        s.reorder(around, *inner, lane)
        output = "sums" if block == "sums" else "y"
        write, _ = s.cache_write(part, output, "register", at=around)
        for loop in inner:
            s.unroll(loop)
        s.vectorize(lane)
        write_back(s, write, around, count)
        size = prod(extent(s, loop) or 1 for loop in (around, *inner))
        if output == "y" and size <= _MOST_TAPS:
            s.unroll(around)  # consecutive lines then share loads
