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
from tensorlang.schedules.simt.grid import THREADS
from tensorlang.scheduling import Knobs, Schedule, schedule

_BINS: Final = 256
_WARP: Final = 32


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


@schedule("sort", algorithm="blocks", model="simt")
def permutation(s: Schedule, knobs: Knobs) -> None:
    """Blocks of elements to blocks of threads, the values of a digit to threads."""
    threads = knobs.choice("threads", THREADS, default=256)
    for loop in ("bits/i", "i"):  # random words, and the numbers before all rounds
        _each(s, loop, threads)
    for name in [block.name for block in blocks(s.function)]:
        around = [f"{name}/{loop}" for loop in s.loops(name)]
        if name.startswith(("count", "move")):
            s.bind(around[-3], "block.x")
            s.bind(around[-2], "thread.x")
        elif name.startswith("clear"):
            _each(s, around[-1], _BINS)
        elif name.startswith("starts"):
            _each(s, around[-2], _WARP)


def _each(s: Schedule, loop: str, threads: int) -> None:
    """One iteration to a thread."""
    outer, inner = s.split(loop, [None, threads])
    s.bind(outer, "block.x")
    s.bind(inner, "thread.x")
