"""Random streams on a GPU: each nest of hashes becomes one grid of threads."""

from __future__ import annotations

from tensorlang.schedules.random import nests
from tensorlang.schedules.simt.generic import bind_outer_loops
from tensorlang.schedules.simt.grid import distribute, grid_knobs
from tensorlang.scheduling import Knobs, Schedule, schedule


@schedule("threefry", model="simt")
def random(s: Schedule, knobs: Knobs) -> None:
    """Distribute every nest, elementwise."""
    grid = grid_knobs(s, knobs, 8 * s.function.buffers[-1].dtype.bytes)
    for chain in [[loop.var.name for loop in nest] for nest in nests(s.function)]:
        if not s.attempt(distribute, s, chain, grid):
            bind_outer_loops(s, chain)
