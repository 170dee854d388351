"""Convolutions of each channel for itself: a few lines by a vector of columns.

for unit in parallel(batch * channels):
    padded = ...                              # one channel: stays in the first cache
    for i_0, j_0 in range(...):
        acc = alloc(f32[rows, lanes], scope="register")
        for i_1, ky, kx in unrolled(...):
            for lane in vectorized(lanes): acc[...] += padded[...] * w[...]
        y[...] = acc[...]

Neighbouring lines need the same lines of the image: what several of them load is
loaded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from tensorlang.ir.visit import blocks
from tensorlang.schedules.conv import vector_image, vector_lines, width, write_back
from tensorlang.schedules.cutting import cut_at, extent, shared
from tensorlang.scheduling import Knobs, Schedule, schedule
from tensorlang.scheduling.tree import find_buffer

_ROWS: Final = (1, 2, 3, 4, 5, 6, 7, 8)
_MOST_TAPS: Final = 128  # products of a tile that are written out


@schedule("conv", algorithm="depthwise")
def depthwise(s: Schedule, knobs: Knobs) -> None:
    """Channels to threads; in each, register tiles of lines by columns."""
    names = [block.name for block in blocks(s.function)]
    results = [name for name in names if name not in ("padded", "sums")]
    lanes, _ = width(s)
    shown = results[0] if results else "sums"
    rank = len(find_buffer(s.function, "sums").shape) - 2
    batch, group, *place = s.loops(shown)[: rank + 2]
    taps = s.loops("sums")[rank + 2 :]
    tall = rank > 1
    if tall:
        rows = _rows(s, place[-2], taps, knobs)
        some, one = s.split(place[-2], [None, rows])
        if results:
            s.compute_at("sums", some)
            tall = rows > 1
            one = s.loops("sums")[-len(taps) - 2]
        if tall:
            column, *folded = s.loops("sums")[-len(taps) - 1 :]
            s.reorder(column, one, *folded)
    elif results:
        s.compute_at("sums", group)
    _tiles(s, lanes, len(taps), tall=tall)
    if results:
        vector_lines(s, shown, lanes)
    if "padded" in names:
        s.compute_at("padded", group)
        vector_image(s, "padded", lanes)
    shared(s, [batch, group])


def _rows(s: Schedule, line: str, taps: Sequence[str], knobs: Knobs) -> int:
    """Lines of a tile: the most that divide all lines and can be written out."""
    lines = extent(s, line) or 1
    count = prod(extent(s, loop) or 1 for loop in taps)
    fit = [n for n in _ROWS if lines % n == 0]
    best = max((n for n in fit if n <= 4 and n * count <= _MOST_TAPS), default=1)
    return knobs.choice("rows", fit, default=best)


def _tiles(s: Schedule, lanes: int, taps: int, *, tall: bool) -> None:
    """Tiles over the columns, and a narrower one for what is left."""
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
