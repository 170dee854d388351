"""Sorts of rows on threads: a block to a row, a thread to each value of a digit.

    for r in range(m):                       for r in bound(m, "block.x"):
        for e in range(n):                       for g in bound(256, "thread.x"):
            bin = digit of keys[e]        ->         for e in range(n):
            count[bin] += 1                              if digit of keys[e] == g:
        ...                                                  count[g] += 1

Each thread goes through all keys, which lie together and are the same for all, and
counts, or moves, those of its own digit in their order: nothing is ever updated by two.
"""

from __future__ import annotations

from typing import Final

from tensorlang.ir.visit import blocks
from tensorlang.schedules.simt.generic import generic
from tensorlang.scheduling import Knobs, Schedule, schedule

_BINS: Final = 256


@schedule("sorting", model="simt")
def sort(s: Schedule, knobs: Knobs) -> None:
    """Rows by radix; short rows, which are counted, go the generic way."""
    names = [block.name for block in blocks(s.function)]
    if "keys" not in names:
        generic(s, knobs)
        return
    row = s.loops("keys")[0]
    for name in names:
        if name.startswith(("count_", "move_")):
            group = s.by_target(name, _BINS, of="count")
            s.bind(group, "thread.x")
        elif not name.startswith("sum_"):
            _shared(s, s.loops(name)[-1])
    s.bind(row, "block.x")


def _shared(s: Schedule, loop: str) -> None:
    """Elements to threads, side by side."""
    step, thread = s.split(loop, [None, _BINS])
    s.reorder(thread, step)
    s.bind(thread, "thread.x")
