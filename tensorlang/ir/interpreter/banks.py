"""Bank conflicts of shared memory: 32 banks of 4 bytes, one word each at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tensorlang.ir.interpreter.lanes import Array, Lanes
    from tensorlang.ir.interpreter.memory import Memory, Place
    from tensorlang.ir.interpreter.state import Machine
    from tensorlang.ir.nodes import IndexMap

WARP = 32
BANKS = 32
WORD = 4  # bytes


def count(machine: Machine, lanes: Lanes, memory: Memory, place: Place) -> None:
    """Add the extra passes that one access by all lanes takes to the report."""
    warp = warps(lanes)
    if warp is None:
        return
    shape = (lanes.count, *place.flat.shape[1:])
    inside = np.broadcast_to(place.flat, shape).reshape(lanes.count, -1)
    words = _physical(machine, memory)[inside % max(memory.size, 1)]
    words = words * memory.buffer.dtype.bytes // WORD
    kept = np.ones(shape, np.bool_) if place.mask is None else place.mask
    kept = np.broadcast_to(kept, shape).reshape(lanes.count, -1)
    extra = sum(
        _extra_passes(warp[kept[:, lane]], words[kept[:, lane], lane])
        for lane in range(words.shape[1])
    )
    machine.report.bank_conflicts[memory.buffer.name] += extra


def _extra_passes(warp: Array, words: Array) -> int:
    """Of each warp: the most distinct words in one bank, less the pass it has."""
    if not warp.size:
        return 0
    once = np.unique(np.stack([warp, words]), axis=1)
    bank = once[0] * BANKS + once[1] % BANKS
    _, passes = np.unique(bank, return_counts=True)
    most = np.zeros(int(once[0].max()) + 1, np.int64)
    np.maximum.at(most, np.unique(bank) // BANKS, passes)
    return int((most[most > 0] - 1).sum())


def warps(lanes: Lanes) -> Array | None:
    """The warp of each lane, as one number; None outside of `thread` loops."""
    linear: Array = np.zeros(lanes.count, np.int64)
    scale, group = 1, None
    for frame, flat in lanes.path():
        if frame.thread.startswith("thread."):
            linear = linear + scale * frame.position[flat]
            scale *= frame.extent
            group = frame.parent_flat[flat]
    return None if group is None else group * (scale // WARP + 1) + linear // WARP


def _physical(machine: Machine, memory: Memory) -> Array:
    """For each logical element its number in memory, through the buffer's layout."""
    layout = memory.buffer.layout
    if layout is None:
        return np.arange(max(memory.size, 1))
    key = layout, memory.shape
    if key not in machine.words:
        machine.words[key] = _laid_out(machine, layout, memory.shape)
    return machine.words[key]


def _laid_out(machine: Machine, layout: IndexMap, shape: tuple[int, ...]) -> Array:
    from tensorlang.ir.interpreter.evaluate import apply_map  # noqa: PLC0415 - is above

    grid = np.indices(shape, np.int64).reshape(len(shape), -1)
    flat: Array = np.zeros(1, np.int64)
    for index in apply_map(machine, layout, list(grid)):
        flat = flat * (int(index.max(initial=0)) + 1) + index
    return np.broadcast_to(flat, grid.shape[1])
