"""Row sorts on a CPU: rows to threads, comparing and counting in lanes.

A counting sort of a row has three nests, which are merged: its keys, the ranks of a
vector of elements at a time, and the scatter. A radix sort is one program already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tensorlang.ir.contents import blocks, loops
from tensorlang.ir.dtypes import f32
from tensorlang.ir.nodes import as_expr
from tensorlang.schedules.cost.core import core_of
from tensorlang.schedules.streaming import loop_named, nearest_option, whole_steps
from tensorlang.schedules.tiling import in_lanes, written
from tensorlang.scheduling import Knobs, Schedule, schedule

_LANES: Final = (8, 16, 32, 64)


@schedule("sorting", algorithm="network")
def network(s: Schedule, knobs: Knobs) -> None:
    """Rows to threads, keys and results in lanes; exchanges are in vectors already."""
    wide = nearest_option(core_of(s.target, f32).lanes, _LANES)
    lanes = knobs.choice("lanes", _LANES, wide)
    keys, length = s.loops("keys")[-1], loop_named(s, s.loops("results")[-1]).extent
    _, last = s.partition(keys, whole_steps(s, length, lanes))
    _vectors(s, ("keys", "padding", "results"), lanes)
    s.attempt(in_lanes, s, loop_named(s, last), lanes)


@schedule("sorting")
def sort(s: Schedule, knobs: Knobs) -> None:
    """Parallelize over rows, whichever algorithm sorts them."""
    wide = nearest_option(core_of(s.target, f32).lanes, _LANES)
    lanes = knobs.choice("lanes", _LANES, default=wide)
    kinds = {b.name: {axis.kind for axis in b.axes} for b in blocks(s.function)}
    if any("reduction" in of for of in kinds.values()):
        _counting_sort(s, lanes, *kinds)
    else:
        independent = [name for name, of in kinds.items() if "ordered" not in of]
        _vectors(s, independent, lanes)


def _counting_sort(s: Schedule, lanes: int, key: str, rank: str, place: str) -> None:
    row = s.loops(key)[0]
    for block in (rank, place):
        s.merge(row, s.loops(block)[0])
    ranks = written(s, rank)
    for buffer in (written(s, key), ranks):
        s.store_at(buffer, row)
    in_lanes(s, loop_named(s, s.loops(key)[-1]), lanes)
    _, element, other = s.loops(rank)
    count = loop_named(s, element).extent
    chunk, lane = s.split(element, [None, lanes])
    s.reorder(chunk, other, lane)
    s.cache_write(rank, ranks, "register", at=chunk)
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


def _vectors(s: Schedule, independent: Sequence[str], lanes: int) -> None:
    """Vectorize what neither counts nor moves in order: keys, clearing, results."""
    row = s.loops(independent[0])[0]
    for block in independent:
        s.attempt(in_lanes, s, loop_named(s, s.loops(block)[-1]), lanes)
    s.parallel(row)
