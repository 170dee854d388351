"""Sorts of rows on a CPU: rows to threads, what compares and counts in lanes.

A row that is sorted by counting goes through three nests, merged: its keys, the number
of smaller ones for lanes of elements at once, and the stores to their places. A row
that is sorted by radix is one program already.
"""

from __future__ import annotations

from typing import Final

from tensorlang.ir.contents import blocks, loops
from tensorlang.ir.nodes import as_expr
from tensorlang.schedules.streaming import loop_named
from tensorlang.schedules.tiling import attempt, in_lanes
from tensorlang.scheduling import Knobs, Schedule, schedule

_LANES: Final = (8, 16, 32, 64)


@schedule("sorting")
def sort(s: Schedule, knobs: Knobs) -> None:
    """Rows in parallel, by whichever way the function sorts them."""
    lanes = knobs.choice("lanes", _LANES, default=16)
    names = [block.name for block in blocks(s.function)]
    if "rank" in names:
        _counted(s, names, lanes)
    else:
        _radix(s, names, lanes)


def _counted(s: Schedule, names: list[str], lanes: int) -> None:
    key, rank, place = names
    row = s.loops(key)[0]
    for block in (rank, place):
        s.merge(row, s.loops(block)[0])
    for buffer in ("key", "rank"):
        s.store_at(buffer, row)
    in_lanes(s, loop_named(s, s.loops(key)[-1]), lanes)
    _, element, other = s.loops(rank)
    count = loop_named(s, element).extent
    chunk, lane = s.split(element, [None, lanes])
    s.reorder(chunk, other, lane)
    s.cache_write(rank, "rank", "register", at=chunk)
    s.decompose_reduction(rank, other)
    s.partition(chunk, count // lanes)
    # all before a chunk, those in it, and all behind: what ties mean is known outside
    _, rest = s.partition(other, f"{chunk} * {lanes}")
    s.partition(rest, lanes)
    for loop in list(loops(s.function)):
        if loop.extent == as_expr(lanes) and loop.var.name not in (other, rest):
            attempt(s, s.vectorize, loop.var.name)
    s.parallel(row)


def _radix(s: Schedule, names: list[str], lanes: int) -> None:
    row = s.loops("keys")[0]
    for block in ("keys", *(n for n in names if n.startswith(("clear", "y_final")))):
        loop = loop_named(s, s.loops(block)[-1])
        attempt(s, in_lanes, s, loop, lanes)
    s.parallel(row)
