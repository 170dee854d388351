"""Sorts on threads, which their device definitions bind already.

The distribution over threads is what makes a sort stable
(`tensorlang.ops.math.block_radix`). Short rows use counting sorts, which are scheduled
generically.
"""

from __future__ import annotations

from tensorlang.schedules.simt.grid import THREADS
from tensorlang.scheduling import Knobs, Schedule, schedule


def keep_bindings(s: Schedule, knobs: Knobs) -> None:
    """Keep blocks of threads as they were bound by the definition."""
    del s, knobs


for _name in ("blocks", "blocks_in_memory"):
    schedule("sorting", algorithm=_name, model="simt")(keep_bindings)


@schedule("sort", algorithm="blocks", model="simt")
def permutation(s: Schedule, knobs: Knobs) -> None:
    """Bind random words and the initial numbering to threads; rounds already are."""
    threads = knobs.choice("threads", THREADS, default=256)
    for loop in ("bits/i", "i"):
        _each(s, loop, threads)


def _each(s: Schedule, loop: str, threads: int) -> None:
    """One iteration per thread."""
    outer, inner = s.split(loop, [None, threads])
    s.bind(outer, "block.x")
    s.bind(inner, "thread.x")
