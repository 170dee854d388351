"""Max-pooling gradients: pixels a stride apart in vectors, then interleaved.

for unit in parallel(images):
    largest, ranks, place, near, given = ...  # per image, or per line without overlap
    for i, j_0 in range(...):
        acc = alloc(f32[stride, lanes], scope="register")
        for r, ky, kx in unrolled(...):
            for lane in vectorized(lanes):
                acc[...] += select(near[...] == tap, given[...], 0)
        dx[...] = acc[...]
"""

from __future__ import annotations

from tensorlang.ir.nodes import Binary, Const, Var
from tensorlang.ir.visit import walk
from tensorlang.schedules.convolution import tiles
from tensorlang.schedules.convolution.products import rearranged
from tensorlang.schedules.stages import Stage, stages
from tensorlang.schedules.tiling import cut_at, extent, parallelize, write_back
from tensorlang.scheduling import Knobs, Schedule, schedule
from tensorlang.scheduling.analysis.tree import block_of, find_block, find_buffer


@schedule("pool", algorithm="interleaved")
def interleaved(s: Schedule, knobs: Knobs) -> None:
    """One image at a time: its maxima, then its pixels."""
    apart = knobs.flag("nontemporal", default=False)  # pays if not read again soon
    *before, last = stages(s.function)
    sums = last if last.driven("reduction") else before.pop()
    copies = [each.name for each in before if rearranged(s, each.output)]
    lanes = tiles.core(s, sums.name).lanes
    batch = at = s.loops(last.name)[0]
    if sums != last:
        s.compute_at(sums.name, batch)
    elif not copies:
        at = _lines(s, sums.name)
    for stage in reversed(before):
        s.compute_at(stage.name, at)
        if stage.name in copies:
            tiles.vector_image(s, stage.name, lanes)
        elif taps := len(stage.driven("reduction")):
            tiles.line_tiles(s, stage.name, taps, lanes)
        else:
            tiles.vector_lines(s, stage.name, lanes)
    for block in _pixels(s, sums, lanes):
        if apart and sums == last:
            s.hint(block, sums.output.name, "nontemporal")
    if sums != last:
        tiles.vector_lines(s, last.name, lanes)
    parallelize(s, [batch])


def _lines(s: Schedule, name: str) -> str:
    """The loop over lines of windows that share no pixels, else over images."""
    batch, *place = s.loops(name)[: -len(tiles.over(s, name))]
    apart = all((extent(s, loop) or 1) == 1 for loop in tiles.over(s, name))
    stride = _stride(s, name, -2) if len(place) > 1 else 0
    if len(place) != 2 or not apart or (extent(s, place[0]) or 1) % stride:
        return batch
    line, phase = s.split(place[0], [None, stride])
    s.unroll(phase)
    return line


def _pixels(s: Schedule, sums: Stage, lanes: int) -> list[str]:
    """Pixels of all phases of a line, stored together; returns the writing blocks."""
    name, taps = sums.name, len(sums.driven("reduction"))
    stride = _stride(s, name)
    column = s.loops(name)[-taps - 1]
    length = extent(s, column) or 1
    pixels = length // stride
    block, parts = name, []
    for size in (
        pixels // lanes * lanes * stride,
        pixels % lanes * stride,
        length % stride,
    ):
        rest = extent(s, s.loops(block)[-taps - 1]) or 0
        if 0 < size < rest:
            first, block = cut_at(s, block, s.loops(block)[-taps - 1], size)
            parts.append(first)
        elif size:
            parts.append(block)
    return [_interleaved(s, part, sums, stride, lanes) for part in parts]


def _interleaved(s: Schedule, part: str, sums: Stage, stride: int, lanes: int) -> str:
    """Vectors of each phase, or of the few remaining pixels; the writing block."""
    column, *inner = s.loops(part)[-len(sums.driven("reduction")) - 1 :]
    length = extent(s, column) or 1
    step = stride if length % stride == 0 else 1
    count = min(lanes, length // step)
    phases: list[str] = []
    if step > 1:
        around, lane, phase = s.split(column, [None, count, step])
        phases = [phase]
    else:
        around, lane = s.split(column, [None, count])
    s.reorder(around, *phases, *inner, lane)
    write, registers = s.cache_write(part, sums.output.name, "register", at=around)
    for loop in (*phases, *inner):
        s.unroll(loop)
    s.vectorize(lane)
    if not phases:
        write_back(s, write, around, count)
        return write
    given = [f"d{n}" for n in range(find_buffer(s.function, registers).ndim)]
    laid = ", ".join([*given[:-1], f"{given[-1]} % {step}", f"{given[-1]} // {step}"])
    s.transform_layout(registers, f"lambda {', '.join(given)}: ({laid})")
    vector, each = s.split(s.loops(write)[-1], [None, step])
    s.reorder(each, vector)
    s.unroll(each)
    s.vectorize(vector)
    return write


def _stride(s: Schedule, name: str, at: int = -1) -> int:
    """The stride along a dimension, by default lines: the modulus of pixel indices."""
    block = block_of(find_block(s.function, name))
    named = {a.value.name: a.var for a in block.axes if isinstance(a.value, Var)}
    column = named[s.loops(name)[: -len(tiles.over(s, name))][at]]
    found = [
        int(n.b.value)
        for n in walk(block)
        if isinstance(n, Binary)
        and n.op == "floormod"
        and n.a == column
        and isinstance(n.b, Const)
    ]
    return found[0] if found else 1
