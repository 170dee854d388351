"""Rows of tables on threads: read side by side, added up in groups of rows.

    for p in range(n):                     for g in bound(128, "block.x"):
        for c in range(width):                 for c in bound(width, "thread.x"):
            row = ids[p]             ->            for p in range(n):
            total[row, c] += dy[p, c]                  row = ids[p]
                                                       if row % 128 == g:
                                                           total[row, c] += dy[p, c]

Each row is added up in the order of its positions, so the result is the same each time;
all groups read all numbers, which lie together, and of the rest their own rows only.
"""

from __future__ import annotations

from typing import Final

from tensorlang.ir.visit import blocks
from tensorlang.schedules.cutting import fused
from tensorlang.schedules.simt.generic import generic
from tensorlang.scheduling import Knobs, Schedule, schedule

_GROUPS: Final = (1, 32, 64, 128, 256, 512)
_THREADS: Final = (32, 64, 128, 256)


@schedule("embedding", model="simt")
def embedding(s: Schedule, knobs: Knobs) -> None:
    """Rows that are added up; those that are read go the generic way."""
    if "add" in {block.name for block in blocks(s.function)}:
        groups = knobs.choice("groups", _GROUPS, default=128)
        threads = knobs.choice("threads_a_group", _THREADS, default=128)
        group = s.by_target("add", groups)
        position, column = s.loops("add")[-2:]
        s.reorder(column, position)
        strip, thread = s.split(column, [None, threads])
        s.bind(fused(s, [group, strip]), "block.x")
        s.bind(thread, "thread.x")
    generic(s, knobs)
