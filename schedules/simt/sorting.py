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
from tensorlang.schedules.simt.grid import THREADS
from tensorlang.scheduling import Knobs, Schedule, schedule

_BINS: Final = 256
_WARP: Final = 32


def bound(s: Schedule, knobs: Knobs) -> None:
    """Sorts by blocks of threads, which their definitions bind already."""
    del s, knobs


for _name in ("blocks", "blocks_in_memory"):
    schedule("sorting", algorithm=_name, model="simt")(bound)


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
