"""Bank conflicts of shared memory: 32 banks of 4 bytes, one word each at a time.

A warp's access of more than 4 bytes per thread takes several passes of 128 bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensorlang.ir import semantics
from tensorlang.ir.collectives import WARP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensorlang.ir.interpreter.lanes import Array, Lanes
    from tensorlang.ir.interpreter.memory import Memory, Place
    from tensorlang.ir.interpreter.state import Machine

BANKS = 32
WORD = 4  # bytes


def count(machine: Machine, lanes: Lanes, memory: Memory, place: Place) -> None:
    """Count the extra passes that one access by all lanes takes."""
    warp = None if machine.alone else warps(lanes)
    if warp is None:
        return
    shape = (lanes.count, *place.flat.shape[1:])
    inside = np.broadcast_to(place.flat, shape).reshape(lanes.count, -1)
    words = _physical(machine, memory)[inside % max(memory.size, 1)]
    words = words * memory.buffer.dtype.bytes // WORD
    kept = np.ones(shape, np.bool_) if place.mask is None else place.mask
    kept = np.broadcast_to(kept, shape).reshape(lanes.count, -1)
    served = _served(lanes, warp, words.shape[1] * memory.buffer.dtype.bytes)
    served = np.broadcast_to(served[:, None], words.shape)
    extra = _extra_passes(served[kept], words[kept])
    machine.report.bank_conflicts[memory.buffer.name] += extra


def _served(lanes: Lanes, warp: Array, size: int) -> Array:
    """The group of threads served in one pass of 128 bytes, as one number."""
    together = max(min(BANKS * WORD // max(size, 1), WARP), 1)
    return warp * WARP + _number(lanes) % WARP // together


def _extra_passes(warp: Array, words: Array) -> int:
    """Per warp, the most distinct words in one bank, minus one; summed."""
    if not warp.size:
        return 0
    span = int(words.max()) // BANKS + 1  # words of a bank
    line, bank = words // BANKS, words % BANKS
    once = np.unique((warp * BANKS + bank) * span + line)
    banks, passes = np.unique(once // span, return_counts=True)
    most = np.zeros(int(banks[-1]) // BANKS + 1, np.int64)
    np.maximum.at(most, banks // BANKS, passes)
    return int((most[most > 0] - 1).sum())


def warps(lanes: Lanes) -> Array | None:
    """The warp number of each lane; None outside of `thread` loops."""
    scale, group = 1, None
    for frame, flat in lanes.path():
        if frame.thread.startswith("thread."):
            scale *= frame.extent
            group = frame.parent_flat[flat]
    if group is None:
        return None
    return group * (scale // WARP + 1) + _number(lanes) // WARP


def _number(lanes: Lanes) -> Array:
    """The thread number of each lane in its block."""
    linear: Array = np.zeros(lanes.count, np.int64)
    scale = 1
    for frame, flat in lanes.path():
        if frame.thread.startswith("thread."):
            linear = linear + scale * frame.position[flat]
            scale *= frame.extent
    return linear


def _physical(machine: Machine, memory: Memory) -> Array:
    """The physical index of each logical element, by the buffer's layout."""
    layout = memory.buffer.layout
    if layout is None:
        return np.arange(max(memory.size, 1))
    flat: Array = np.zeros(1, np.int64)
    for index in layout_results(machine, memory):
        flat = flat * (int(index.max(initial=0)) + 1) + index
    return np.broadcast_to(flat, max(memory.size, 1))


def layout_results(machine: Machine, memory: Memory) -> Sequence[Array]:
    """The results of a buffer's layout for each logical element of a memory."""
    layout = memory.buffer.layout
    assert layout is not None
    key = layout, memory.shape
    if key not in machine.words:
        grid = np.indices(memory.shape, np.int64).reshape(len(memory.shape), -1)
        values = dict(zip(layout.vars, grid, strict=True))
        machine.words[key] = [
            np.broadcast_to(semantics.evaluate(result, values), grid.shape[1])
            for result in layout.results
        ]
    return machine.words[key]
