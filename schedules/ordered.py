"""Nests with loops that run in order, on a CPU: what is independent to threads.

    for r in range(m):                      for r in parallel(m):
        for k in range(n):        ->            for k in range(n):
            y[r, at[k]] += x[r, k]                  y[r, at[k]] += x[r, k]

Where a row loop is contiguous in memory, strips of it go to threads and lanes, and each
strip runs all iterations.
"""

from __future__ import annotations

from math import prod
from typing import Final

from tensorlang.frozen import frozen
from tensorlang.ir.contents import writes
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.nodes import Block, Store
from tensorlang.ir.visit import substitute, walk
from tensorlang.schedules.cost.core import core_of
from tensorlang.schedules.stages import extent_of
from tensorlang.schedules.tiling import cut, extent, is_part, parallelize
from tensorlang.scheduling import Schedule
from tensorlang.scheduling.analysis import tree

STRIPS: Final = (1, 2, 4, 8)  # vectors side by side
_MANY_STRIPS: Final = 4


@frozen
class Nest:
    """A block, the loops over rows around it, and the ordered loops inside them."""

    block: Block
    rows: tuple[str, ...]  # loops over rows, outermost first
    ordered: tuple[str, ...]  # loops that run in order

    @property
    def across(self) -> bool:
        """Whether the last row loop is contiguous in memory."""
        values = {axis.var: axis.value for axis in self.block.axes}
        last = [n for n in walk(self.block.body) if isinstance(n, Store)][-1]
        steps = linear(substitute(last.indices[-1], values)).terms
        return self.rows[-1] in {str(atom) for atom, step in steps if step == 1}


def nest_of(path: tree.Path) -> Nest | None:
    """The nest that leads to a block; None if it has reduction axes."""
    kinds = {axis.value: axis.kind for axis in tree.block_of(path).axes}
    around = tree.enclosing_loops(path)
    if any(kinds.get(loop.var) not in ("spatial", "ordered") for loop in around):
        return None

    def named(kind: str) -> tuple[str, ...]:
        return tuple(x.var.name for x in around if kinds[x.var] == kind)

    return Nest(tree.block_of(path), named("spatial"), named("ordered"))


def ordered_nests(s: Schedule) -> None:
    """Schedule what is left of such nests: rows to threads, contiguous ones to lanes.

    Scans, whose state is initialized row by row, have a schedule of their own.
    """
    for path in [*tree.paths_to(s.function, Block)]:
        loops, nest = tree.enclosing_loops(path), nest_of(path)
        if nest is None or not (nest.rows and nest.ordered):
            continue
        if any(loop.kind != "serial" for loop in loops):
            continue
        dtype = max((b.dtype for b in writes(nest.block)), key=lambda each: each.bits)
        core = core_of(s.target, dtype)
        sizes = [extent_of(loop) for loop in loops]
        known = [size for size in sizes if size is not None]
        shared = len(known) < len(sizes) or core.worth_threads(prod(known))
        lanes = core.lanes * vectors_of(extent(s, nest.rows[-1]), core.lanes)
        if not (nest.across and s.attempt(in_strips, s, nest, lanes, shared)):
            s.attempt(parallelize, s, nest.rows if shared else ())


def vectors_of(columns: int | None, lanes: int) -> int:
    """Vectors of a strip: as many as leave several strips."""
    fits = (n for n in STRIPS if (columns or 1) >= _MANY_STRIPS * n * lanes)
    return max(fits, default=1)


def in_strips(s: Schedule, nest: Nest, lanes: int, shared: bool = True) -> None:
    """Strips of the last row loop, in lanes; each runs all ordered iterations.

    Args:
        lanes: The columns of a strip.
        shared: Whether strips go to threads.
    """
    *outer, column = nest.rows
    s.reorder(*outer, column, *nest.ordered)
    for part in cut(s, nest.block.name, column, lanes):
        around = s.loops(part)
        *rows, last = (_part_of(around, name) for name in nest.rows)
        ordered = [_part_of(around, name) for name in nest.ordered]
        length = min(lanes, extent(s, last) or lanes)
        strip, lane = s.split(last, [None, length])
        s.reorder(*rows, strip, *ordered, lane)
        s.vectorize(lane)
        if shared:
            parallelize(s, [*rows, strip])


def _part_of(around: tuple[str, ...], name: str) -> str:
    return next(loop for loop in around if is_part(loop, name))
