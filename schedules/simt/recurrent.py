"""Recurrent networks on a GPU: launches for each step, a thread for each sum and unit.

for step in range(length):
    for s_b_g_u in bound(...):
        for k in range(size): ...
    for b_j in bound(...): state[step + 1, b, j] = cell(sums[b, j], ...)
"""

from __future__ import annotations

from tensorlang.schedules.recurrent import phases
from tensorlang.schedules.simt.generic import generic
from tensorlang.schedules.simt.grid import per_thread
from tensorlang.schedules.tiling import written
from tensorlang.scheduling import Knobs, Schedule, schedule

_THREADS = (32, 64, 128, 256)


@schedule("recurrent", model="simt")
def recurrent(s: Schedule, knobs: Knobs) -> None:
    """Bind what is in the loop over steps, and schedule what is around it."""
    threads = knobs.choice("step_threads", _THREADS, default=64)
    for products, cell in phases(s):
        strip, row, depth, *inner = s.loops(products)[-5:]
        s.reorder(strip, row, *inner, depth)
        at = per_thread(s, [strip, row, *inner], threads)
        s.cache_write(products, written(s, products), "register", at)
        per_thread(s, s.loops(cell)[-2:], threads)
    generic(s, knobs)
