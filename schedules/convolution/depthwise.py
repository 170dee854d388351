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

from tensorlang.schedules.convolution import tiles
from tensorlang.schedules.convolution.products import Product, only, readers, rearranged
from tensorlang.schedules.tiling import extent, parallelize
from tensorlang.scheduling import Knobs, Schedule
from tensorlang.scheduling.analysis.tree import constant, find_buffer

_ROWS: Final = (1, 2, 3, 4, 5, 6, 7, 8)


def forward(s: Schedule, knobs: Knobs, sums: Sequence[Product]) -> set[str]:
    """Channels to threads; within each, register tiles of lines by columns.

    Tiles of lines by columns for the sums, then the block computed from them.
    """
    product = only(sums, "convolution")
    name, taps, rank = product.name, product.taps, product.rank
    lanes = tiles.core(s, name).lanes
    image = rearranged(s, product.image.buffer)
    result = only(readers(s, name) or [""], "reader of the sums")
    batch, group, *place = s.loops(result or name)[: rank + 2]
    tall = rank > 1
    if tall:
        rows = _rows(s, place[-2], taps, knobs)
        some, one = s.split(place[-2], [None, rows])
        if result:
            s.compute_at(name, some)
            tall = rows > 1
            one = s.loops(name)[-rank - 2]
        if tall:
            column, *folded = s.loops(name)[-rank - 1 :]
            s.reorder(column, one, *folded)
    elif result:
        s.compute_at(name, group)
    tiles.line_tiles(s, name, rank + tall, lanes, tiles.MOST_TAPS)
    if result:
        tiles.vector_lines(s, result, lanes)
    if image:
        s.compute_at(image, group)
        tiles.vector_image(s, image, lanes)
    parallelize(s, [batch, group])
    return {name, result or name} | ({image} if image else set())


def depthwise_weights(
    s: Schedule, knobs: Knobs, sums: Sequence[tuple[Product, str]]
) -> set[str]:
    """Weight gradients of each image: a vector for every window element.

    Lines are tiled, as neighbouring ones read overlapping lines of the image.

    Args:
        sums: The sums per lane of whole vectors and of the remaining columns, each
            with the block that adds the lanes.
    """
    first, added = sums[0][0], [name for _, name in sums]
    rank = len(first.places)
    (top,) = readers(s, *added) if len(sums) > 1 else added
    image = rearranged(s, first.image.buffer)
    batch, group, *window = s.loops(top)[: rank + 2]
    for name in added:
        if name != top:
            s.compute_at(name, group)
    for part, folded in sums:
        s.compute_at(part.name, group)
        _window_lanes(s, part.name, group, rank, knobs)
        around = s.loops(folded).index(group) + 1
        for loop in s.loops(folded)[around:-1]:
            s.unroll(loop)
        s.vectorize(s.loops(folded)[-1])
    if top not in added:
        for loop in window:
            s.unroll(loop)
    if image:
        s.compute_at(image, group)
        tiles.vector_image(s, image, tiles.core(s, first.name).lanes)
    parallelize(s, [batch, group])
    done = {part.name for part, _ in sums} | {*added, top}
    return done | ({image} if image else set())


def _window_lanes(s: Schedule, part: str, group: str, rank: int, knobs: Knobs) -> None:
    """Registers for all window elements, or only the last dimension's if too many."""
    registers = tiles.core(s, part).registers
    own = s.loops(part)[s.loops(part).index(group) + 1 :]
    folded = tiles.over(s, part)
    spatial = own[: len(own) - len(folded)]
    lines, step = folded[: rank - 1], folded[rank - 1 :]
    wide = constant(find_buffer(s.function, part).shape[-1]) != 1
    taps, lane = (spatial[:-1], spatial[-1:]) if wide else (spatial, ())
    first = next(
        at
        for at in range(len(taps) + 1)
        if at >= len(taps) - 1 or prod(tiles.extents(s, taps[at:])) <= registers - 8
    )
    around, inner = taps[:first], taps[first:]
    rows = _rows(s, lines[-1], inner, knobs, "weight_lines") if lines else 1
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


def _rows(
    s: Schedule, line: str, taps: Sequence[str], knobs: Knobs, name: str = "rows"
) -> int:
    """Lines of a tile: the most that divide all lines and can be unrolled."""
    lines = extent(s, line) or 1
    count = prod(extent(s, loop) or 1 for loop in taps)
    fit = [n for n in _ROWS if lines % n == 0]
    best = max((n for n in fit if n <= 4 and n * count <= tiles.MOST_TAPS), default=1)
    return knobs.choice(name, fit, default=best)
