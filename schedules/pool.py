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

from tensorlang.ir.contents import blocks
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.nodes import Var
from tensorlang.schedules.convolution import tiles
from tensorlang.schedules.convolution.products import readers, rearranged
from tensorlang.schedules.generic import generic
from tensorlang.schedules.stages import Stage, extent_of, stages
from tensorlang.schedules.tiling import extent, parallelize
from tensorlang.scheduling import Knobs, Schedule, schedule


@schedule("pool")
def pool(s: Schedule, knobs: Knobs) -> None:
    """Vectorize windows at a constant stride; schedule the rest generically."""
    folded = [stage for stage in stages(s.function) if stage.driven("reduction")]
    if len(folded) == 1 and _is_alone(s, folded[0]) and _in_lines(folded[0]):
        _windows(s, folded[0])
    else:
        generic(s, knobs)


def _is_alone(s: Schedule, folded: Stage) -> bool:
    """Whether there is nothing but windows, at most padded before and read once."""
    image = {rearranged(s, load.buffer) for load in folded.loads} - {None}
    result = readers(s, folded.output.name)
    names = {block.name for block in blocks(s.function)}
    return names == {folded.name, *result, *image} and len(result) < 2 > len(image)


def _in_lines(folded: Stage) -> bool:
    """Whether a line has several windows at a constant stride."""
    column, taps = folded.driven("spatial")[-1], folded.driven("reduction")
    steps = [dict(linear(load.indices[-1]).terms) for load in folded.loads]
    size = prod(extent_of(loop) or 1 for loop in taps)
    few = (extent_of(column) or 0) >= 4 and size <= tiles.MOST_TAPS
    return few and all(folded.axis(column) in terms for terms in steps)


def _windows(s: Schedule, folded: Stage) -> None:
    """Tiles of windows, with the image and the results of a unit of work around."""
    name, taps = folded.name, len(folded.driven("reduction"))
    image = next((rearranged(s, load.buffer) for load in folded.loads), None)
    last = all(isinstance(load.indices[-1], Var) for load in folded.loads)
    if image and last and s.attempt(s.inline, image):
        image = None  # with channels last, a test for a whole vector
    (result,) = readers(s, folded.output.name) or [""]
    lanes = tiles.core(s, name).lanes
    batch, *place = s.loops(result) if result else s.loops(name)[:-taps]
    if result:
        s.compute_at(name, place[-2] if len(place) > 1 else batch)
    inner = s.loops(name)[-taps:]
    size = prod(extent(s, loop) or 1 for loop in inner)
    for around in tiles.line_tiles(s, name, taps, lanes):
        if not result and size * (extent(s, around) or 1) <= tiles.MOST_TAPS:
            s.unroll(around)  # consecutive lines then share loads
    if result:
        tiles.vector_lines(s, result, lanes)
    if image:
        s.compute_at(image, batch)
        tiles.vector_image(s, image, lanes)
    parallelize(s, [batch] if image else [batch, *place[:-1]])
