"""Sorts on threads, which their definitions for devices bind already.

Which thread has what is how a sort keeps the order of what is equal
(`tensorlang.ops.block_radix`). Short rows, which are counted, go the generic way.
"""

from __future__ import annotations

from tensorlang.schedules.simt.grid import THREADS
from tensorlang.scheduling import Knobs, Schedule, schedule


def bound(s: Schedule, knobs: Knobs) -> None:
    """Sorts by blocks of threads, which their definitions bind already."""
    del s, knobs


for _name in ("blocks", "blocks_in_memory"):
    schedule("sorting", algorithm=_name, model="simt")(bound)


@schedule("sort", algorithm="blocks", model="simt")
def permutation(s: Schedule, knobs: Knobs) -> None:
    """Random words, and the numbers before all rounds, to threads; all else is."""
    threads = knobs.choice("threads", THREADS, default=256)
    for loop in ("bits/i", "i"):
        _each(s, loop, threads)


def _each(s: Schedule, loop: str, threads: int) -> None:
    """One iteration to a thread."""
    outer, inner = s.split(loop, [None, threads])
    s.bind(outer, "block.x")
    s.bind(inner, "thread.x")
