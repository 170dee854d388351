"""Scans on a CPU: rows to threads, state in registers, lanes across rows.

    for r in range(m): state[r] = 0              for r in parallel(m):
    for r in range(m):                               state = alloc(f64[1], "register")
        for k in range(n):               ->          state[0] = 0
            state[r] += x[r, k]                      for k in range(n):
            y[r, k] = state[r]                           state[0] += x[r, k]
                                                         y[r, k] = state[0]

Along a row, execution is sequential. If other dimensions follow the scanned one, lanes
run along those.
"""

from __future__ import annotations

from typing import Final

from tensorlang.ir.contents import allocations, writes
from tensorlang.ir.dtypes import f32
from tensorlang.ir.nodes import Block
from tensorlang.schedules.cost.core import core_of
from tensorlang.schedules.generic import generic
from tensorlang.schedules.ordered import Nest, nest_of
from tensorlang.schedules.streaming import nearest_option
from tensorlang.schedules.tiling import fused
from tensorlang.scheduling import Knobs, Schedule, schedule
from tensorlang.scheduling.analysis import tree

_LANES: Final = (8, 16, 32, 64)


@schedule("scan")
def scan(s: Schedule, knobs: Knobs) -> None:
    """Every scan with its initialization; all other stages by their kind."""
    wide = nearest_option(core_of(s.target, f32).lanes, _LANES)
    lanes = knobs.choice("lanes", _LANES, default=wide)
    first: Nest | None = None
    for nest in map(nest_of, tree.paths_to(s.function, Block)):
        if first and nest and nest.ordered and len(first.rows) == len(nest.rows) > 0:
            (_lanes_across_rows if nest.across else _row_per_thread)(
                s, first, nest, lanes
            )
        first = nest
    generic(s, knobs)


def _row_per_thread(s: Schedule, first: Nest, nest: Nest, lanes: int) -> None:
    """Rows to threads, the state of each in a register."""
    del lanes
    row, other = fused(s, first.rows), fused(s, nest.rows)
    s.merge(row, other)
    held = {buffer.name for buffer in writes(first.block)}
    for buffer in list(allocations(s.function)):
        if buffer.name in held and s.attempt(s.store_at, buffer.name, row):
            s.set_scope(buffer.name, "register")
    s.parallel(row)


def _lanes_across_rows(s: Schedule, first: Nest, nest: Nest, lanes: int) -> None:
    """Blocks of rows to threads, one lane each."""
    blocks = []
    for each in (first, nest):
        *outer, last = each.rows
        block, lane = s.split(last, [None, lanes])
        if each.ordered:
            s.reorder(*outer, block, *each.ordered, lane)
        s.vectorize(lane)
        blocks.append(fused(s, [*outer, block]))
    s.merge(*blocks)
    s.parallel(blocks[0])
