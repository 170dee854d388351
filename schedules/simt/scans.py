"""Running folds on threads: chunks of rows at once, or rows.

Chunks of a part go to the threads of a block, and what walks from part to part, or from
chunk to chunk, to a thread a row. Short rows are a thread's each, the generic way.
"""

from __future__ import annotations

from typing import Final

from tensorlang.ir.visit import blocks
from tensorlang.schedules.cutting import fused
from tensorlang.schedules.simt.grid import one_each
from tensorlang.scheduling import Knobs, Schedule, schedule

_WARP: Final = 32
_THREADS: Final = (64, 128, 256)
# block -> the loops of it that go to threads, one iteration each
_WALKS: Final = {"first": 1, "start": 2}
_PARTS: Final = ("sums", "totals", "y")


@schedule("scan", algorithm="chunks", model="simt")
def chunks(s: Schedule, knobs: Knobs) -> None:
    """Every nest by what it does: go over chunks, walk, or clear."""
    threads = knobs.choice("threads", _THREADS, default=256)
    for name in [block.name for block in blocks(s.function)]:
        around = s.loops(name)
        if name in _PARTS:
            _, _, thread, *_ = around
            s.bind(thread, "thread.x")
            s.bind(fused(s, around[:2]), "block.x")
        elif name in _WALKS:
            one_each(s, around[: _WALKS[name]], _WARP)
        else:
            one_each(s, around, threads)
