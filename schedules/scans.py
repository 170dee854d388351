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

from dataclasses import dataclass
from typing import Final

from tensorlang.ir.contents import allocations, writes
from tensorlang.ir.dtypes import f32
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.nodes import Block, Store
from tensorlang.ir.visit import substitute, walk
from tensorlang.schedules.cost.core import core_of
from tensorlang.schedules.generic import generic
from tensorlang.schedules.streaming import nearest_option
from tensorlang.schedules.tiling import fused
from tensorlang.scheduling import Knobs, Schedule, schedule
from tensorlang.scheduling.analysis import tree

_LANES: Final = (8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class Nest:
    """A block, the loops over rows around it, and the ordered loops inside them.

    Attributes:
        block: The block.
        rows: The loops over rows, outermost first.
        ordered: The loops that run in order.
    """

    block: Block
    rows: tuple[str, ...]
    ordered: tuple[str, ...]

    @property
    def across(self) -> bool:
        """Whether the last row loop is contiguous in memory."""
        values = {axis.var: axis.value for axis in self.block.axes}
        last = [n for n in walk(self.block.body) if isinstance(n, Store)][-1]
        steps = linear(substitute(last.indices[-1], values)).terms
        return self.rows[-1] in {str(atom) for atom, step in steps if step == 1}


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


def nest_of(path: tree.Path) -> Nest | None:
    """The nest that leads to a block; None if it has reduction axes."""
    kinds = {axis.value: axis.kind for axis in tree.block_of(path).axes}
    around = tree.enclosing_loops(path)
    if any(kinds.get(loop.var) not in ("spatial", "ordered") for loop in around):
        return None

    def named(kind: str) -> tuple[str, ...]:
        return tuple(x.var.name for x in around if kinds[x.var] == kind)

    return Nest(tree.block_of(path), named("spatial"), named("ordered"))


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
