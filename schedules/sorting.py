"""Row sorts on a CPU: rows to threads, comparing and counting in lanes.

A counting sort of a row has three nests, which are merged: its keys, the ranks of a
vector of elements at a time, and the scatter. A radix sort is one program already.
"""

from __future__ import annotations

from typing import Final

from tensorlang.ir.contents import blocks, loops
from tensorlang.ir.nodes import as_expr
from tensorlang.schedules.streaming import loop_named
from tensorlang.schedules.tiling import in_lanes
from tensorlang.scheduling import Knobs, Schedule, schedule

_LANES: Final = (8, 16, 32, 64)


@schedule("sorting")
def sort(s: Schedule, knobs: Knobs) -> None:
    """Parallelize over rows, whichever algorithm sorts them."""
    lanes = knobs.choice("lanes", _LANES, default=16)
    names = [block.name for block in blocks(s.function)]
    if "rank" in names:
        _counting_sort(s, names, lanes)
    else:
        _radix_sort(s, names, lanes)


def _counting_sort(s: Schedule, names: list[str], lanes: int) -> None:
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
    # elements before a chunk, inside it, and after it: outside, tie-breaking is
    # constant
    _, rest = s.partition(other, f"{chunk} * {lanes}")
    s.partition(rest, lanes)
    for loop in list(loops(s.function)):
        if loop.extent == as_expr(lanes) and loop.var.name not in (other, rest):
            s.attempt(s.vectorize, loop.var.name)
    s.parallel(row)


def _radix_sort(s: Schedule, names: list[str], lanes: int) -> None:
    row = s.loops("keys")[0]
    for block in ("keys", *(n for n in names if n.startswith(("clear", "y_final")))):
        loop = loop_named(s, s.loops(block)[-1])
        s.attempt(in_lanes, s, loop, lanes)
    s.parallel(row)
