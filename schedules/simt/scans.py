"""Scans that are not chunked, on threads: each scans a row, its state in registers.

for r in range(m): state[r] = 0        for t in bound(m, "thread.x"):
for r in range(m):                         state = alloc(f64[1], "register")
for k in range(n):                     state[0] = 0
    state[r] += x[r, k]     ->         for k in range(n):
    y[r, k] = state[r]                     state[0] += x[t, k]
                                           y[t, k] = state[0]
"""

from __future__ import annotations

from typing import Final

from tensorlang.ir.contents import allocations, writes
from tensorlang.ir.nodes import Block
from tensorlang.schedules.ordered import Nest, nest_of
from tensorlang.schedules.tiling import fused
from tensorlang.scheduling import Schedule
from tensorlang.scheduling.analysis.tree import paths_to

_THREADS: Final = 64


def sequential_scans(s: Schedule) -> None:
    """Schedule every scan with its initialization; nothing else is touched."""
    first: Nest | None = None
    for nest in [nest_of(path) for path in paths_to(s.function, Block)]:
        if first and nest and nest.ordered and len(first.rows) == len(nest.rows) > 0:
            s.attempt(_row_per_thread, s, first, nest)
        first = nest


def _row_per_thread(s: Schedule, first: Nest, nest: Nest) -> None:
    """Rows to threads, the state of each in a register."""
    row, other = fused(s, first.rows), fused(s, nest.rows)
    s.merge(row, other)
    blocks, thread = s.split(row, [None, _THREADS])
    held = {buffer.name for buffer in writes(first.block)}
    for buffer in list(allocations(s.function)):
        if buffer.name in held and s.attempt(s.store_at, buffer.name, thread):
            s.set_scope(buffer.name, "register")
    s.bind(blocks, "block.x")
    s.bind(thread, "thread.x")
