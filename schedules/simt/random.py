"""Random streams on a device: every nest of hashes is one grid of threads."""

from __future__ import annotations

from tensorlang.schedules.random import nests
from tensorlang.schedules.simt.generic import bind_somehow
from tensorlang.schedules.simt.grid import grid_knobs, share_out
from tensorlang.schedules.tiling import attempt
from tensorlang.scheduling import Knobs, Schedule, schedule


@schedule("threefry", model="simt")
def random(s: Schedule, knobs: Knobs) -> None:
    """Every nest is shared out, element by element."""
    grid = grid_knobs(s, knobs, 8 * s.function.buffers[-1].dtype.bytes)
    for chain in [[loop.var.name for loop in nest] for nest in nests(s.function)]:
        if not attempt(s, share_out, s, chain, grid):
            bind_somehow(s, chain)
