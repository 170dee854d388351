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

from typing import Final

from tensorlang.ir.contents import blocks
from tensorlang.ir.nodes import Binary, Const, Var
from tensorlang.ir.visit import walk
from tensorlang.schedules.conv_tiles import (
    over,
    vector_image,
    vector_lines,
    width,
    write_back,
)
from tensorlang.schedules.tiling import cut_at, extent, parallelize
from tensorlang.scheduling import Knobs, Schedule, schedule
from tensorlang.scheduling.tree import block_of, find_block, find_buffer

_PADDED: Final = ("near", "given", "padded")


@schedule("pool", algorithm="interleaved")
def interleaved(s: Schedule, knobs: Knobs) -> None:
    """One image at a time: its maxima, then its pixels."""
    apart = knobs.flag("nontemporal", default=False)  # pays if not read again soon
    names = [block.name for block in blocks(s.function)]
    lanes, _ = width(s, "dx")
    top = "narrow" if "narrow" in names else "dx"
    batch = s.loops(top)[0]
    if top != "dx":
        s.compute_at("dx", batch)
    at = _lines(s) if top == "dx" and not set(_PADDED) & set(names) else batch
    for name in ("given", "near", "place", "ranks", "largest", "padded"):
        if name in names:
            s.compute_at(name, at)
    vector_lines(s, "place", lanes)
    for name in _PADDED:
        if name in names:
            vector_image(s, name, lanes)
    for name in ("largest", "ranks"):
        _folds(s, name, lanes)
    writes = _pixels(s, lanes)
    for block in writes if apart and top == "dx" else ():
        s.hint(block, "dx", "nontemporal")
    if top != "dx":
        vector_lines(s, top, lanes)
    parallelize(s, [batch])


def _lines(s: Schedule) -> str:
    """The loop over lines of windows that share no pixels, else over images."""
    batch, *place = s.loops("dx")[: -len(over(s, "dx"))]
    apart = all((extent(s, loop) or 1) == 1 for loop in over(s, "dx"))
    stride = _stride(s, -2) if len(place) > 1 else 0
    if len(place) != 2 or not apart or (extent(s, place[0]) or 1) % stride:
        return batch
    line, phase = s.split(place[0], [None, stride])
    s.unroll(phase)
    return line


def _folds(s: Schedule, name: str, lanes: int) -> None:
    """Vectorize neighbouring windows."""
    taps = len(over(s, name))
    column = s.loops(name)[-taps - 1]
    length = extent(s, column) or 1
    whole = length // lanes * lanes
    parts = cut_at(s, name, column, whole) if 0 < whole < length else [name]
    for part in parts:
        column, *inner = s.loops(part)[-taps - 1 :]
        count = min(lanes, extent(s, column) or 1)
        around, lane = s.split(column, [None, count])
        s.reorder(around, *inner, lane)
        write, _ = s.cache_write(part, name, "register", at=around)
        for loop in inner:
            s.unroll(loop)
        s.vectorize(lane)
        write_back(s, write, around, count)


def _pixels(s: Schedule, lanes: int) -> list[str]:
    """Pixels of all phases of a line, stored together; returns the writing blocks."""
    taps = len(over(s, "dx"))
    stride = _stride(s)
    column = s.loops("dx")[-taps - 1]
    length = extent(s, column) or 1
    pixels = length // stride
    block, parts = "dx", []
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
    return [_interleaved(s, part, taps, stride, lanes) for part in parts]


def _interleaved(s: Schedule, part: str, taps: int, stride: int, lanes: int) -> str:
    """Vectors of each phase, or of the few remaining pixels; the writing block."""
    column, *inner = s.loops(part)[-taps - 1 :]
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
    write, registers = s.cache_write(part, "dx", "register", at=around)
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


def _stride(s: Schedule, at: int = -1) -> int:
    """The stride along a dimension, by default lines: the modulus of pixel indices."""
    block = block_of(find_block(s.function, "dx"))
    named = {a.value.name: a.var for a in block.axes if isinstance(a.value, Var)}
    column = named[s.loops("dx")[: -len(over(s, "dx"))][at]]
    found = [
        int(n.b.value)
        for n in walk(block)
        if isinstance(n, Binary)
        and n.op == "floormod"
        and n.a == column
        and isinstance(n.b, Const)
    ]
    return found[0] if found else 1
