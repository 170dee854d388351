"""Embedding rows on a CPU.

    for p in range(n):                  for p_0 in parallel(...):  # 4096 elements
        for c in range(width):    ->        for p_1 in range(...):
            y[p, c] = table[ids[p], c]          for c in vectors: ...

Gradient rows are added in the order of their positions, so positions stay sequential.
Columns are independent: strips of them go to threads, and each strip visits all
positions.
"""

from __future__ import annotations

from typing import Final

from tensorlang.ir.contents import blocks
from tensorlang.ir.dtypes import f32
from tensorlang.schedules.cost.core import PAGE, core_of
from tensorlang.schedules.generic import generic
from tensorlang.schedules.ordered import STRIPS, in_strips, nest_of, vectors_of
from tensorlang.schedules.streaming import loop_named, nearest_option
from tensorlang.schedules.tiling import extent, in_lanes
from tensorlang.scheduling import Knobs, Schedule, schedule
from tensorlang.scheduling.analysis.tree import find_block

_ELEMENTS: Final = (1 << 10, 1 << 12, 1 << 14)  # per thread's unit of work
_PAGES: Final = 4  # of a thread's unit of work


@schedule("embedding")
def embedding(s: Schedule, knobs: Knobs) -> None:
    """Gather rows, or scatter-add into them."""
    added = [
        b.name for b in blocks(s.function) if "ordered" in {a.kind for a in b.axes}
    ]
    for block in added:
        _added(s, block, knobs)
    if added:
        generic(s, knobs)  # zeroing before, rounding after
    else:
        _read(s, knobs)


def _width(s: Schedule) -> int:
    """Lanes of a vector register of the table's elements."""
    floats = [b.dtype for b in s.function.buffers if b.dtype.is_float]
    widest = max([*floats, f32], key=lambda each: each.bits)
    return core_of(s.target, widest).lanes


def _read(s: Schedule, knobs: Knobs) -> None:
    (block,) = blocks(s.function)
    row, column = s.loops(block.name)
    columns = extent(s, column) or 1
    usual = nearest_option(_PAGES * PAGE / f32.bytes, _ELEMENTS)
    elements = knobs.choice("elements", _ELEMENTS, default=usual)
    in_lanes(s, loop_named(s, column), 2 * _width(s))
    rows, _ = s.split(row, [None, max(elements // columns, 1)])
    s.parallel(rows)


def _added(s: Schedule, block: str, knobs: Knobs) -> None:
    nest, width = nest_of(find_block(s.function, block)), _width(s)
    assert nest is not None
    usual = vectors_of(extent(s, nest.rows[-1]), width)
    in_strips(s, nest, width * knobs.choice("strip", STRIPS, default=usual))
