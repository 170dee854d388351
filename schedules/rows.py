"""Programs of rows on a CPU: all that is done to a row while it is in the cache.

    for i in range(m): top[i] = max of x[i, :]      for i in parallel(m):
    for i in range(m): e[i, :] = exp(x - top[i])        top[0] = max of x[i, :]
    for i in range(m): total[i] = sum of e[i, :]   ->   y[i, :] = exp(x - top[0])
    for i in range(m): y[i, :] = e / total[i]           total[0] = sum of y[i, :]
                                                        y[i, :] = y / total[0]

Nests over the same rows merge. A temporary as large as the result lives in it, any
other one in a buffer of one row, what is folded in registers. Rows go to threads, what
runs along them to lanes, sums in several lanes side by side.

Where the rows are not neighbours in memory, `[m, n, i]`, blocks of neighbouring rows
take their place, a lane each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tensorlang.ir.nodes import Buffer, For
from tensorlang.ir.visit import allocations
from tensorlang.schedules.cutting import in_lanes, tried
from tensorlang.schedules.generic import generic
from tensorlang.schedules.plan import Plan
from tensorlang.schedules.reductions import fold_in_lanes
from tensorlang.schedules.row_blocks import row_blocks
from tensorlang.schedules.stages import Stage, extent_of, stages
from tensorlang.schedules.streaming import loop_named
from tensorlang.scheduling import Knobs, Schedule, schedule

_LANES: Final = (8, 16, 32, 64, 128)
_MOST_IN_REGISTERS: Final = 64  # elements of a temporary


@dataclass(slots=True)
class _Group:
    """Stages whose first loops are one, by the loops inside that are one."""

    loop: str
    inner: list[list[Stage]]


@schedule("rows")
def rows(s: Schedule, knobs: Knobs) -> None:
    """Rows to threads, each from its first nest to its last at once."""
    _in_results(s)
    if any(buffer.ndim > 2 for buffer in s.function.buffers):
        row_blocks(s, knobs)
        return
    groups = list(_merged(s))
    for group in groups:
        _own_memory(s, group.loop)
    for group in groups:
        for joined in group.inner:
            _in_lanes(s, knobs, joined)
        s.parallel(group.loop)
    generic(s, knobs)


def _in_results(s: Schedule) -> None:
    """Temporaries that live in the result made of them."""
    results = [p.buffer.name for p in s.function.params if p.role == "out"]
    for buffer in list(allocations(s.function)):
        any(tried(s, s.store_in, buffer.name, name) for name in results)


def _merged(s: Schedule) -> Iterator[_Group]:
    """The stages of rows, neighbours merged as far as that is possible."""
    group: _Group | None = None
    for stage in list(stages(s.function)):
        first = stage.loops[0]
        along = first in stage.driven("spatial")
        if along and group and tried(s, s.merge, group.loop, first.var.name):
            _join(s, group, stage)
            continue
        if group is not None:
            yield group
        group = _Group(first.var.name, [[stage]]) if along else None
    if group is not None:
        yield group


def _join(s: Schedule, group: _Group, stage: Stage) -> None:
    """Put a stage of merged rows into the group, in one pass with those before it."""
    last, inner = group.inner[-1][0].loops[1:], stage.loops[1:]
    both = len(last) == len(inner) == 1
    if both and tried(s, s.merge, last[0].var.name, inner[0].var.name):
        group.inner[-1].append(stage)
    else:
        group.inner.append([stage])


def _own_memory(s: Schedule, loop: str) -> None:
    """Each row has temporaries of its own, those of a few elements in registers."""
    for buffer in list(allocations(s.function)):
        if tried(s, s.store_at, buffer.name, loop):
            made = next(b for b in allocations(s.function) if b.name == buffer.name)
            if _elements(made) <= _MOST_IN_REGISTERS:
                s.set_scope(buffer.name, "register")


def _elements(buffer: Buffer) -> float:
    count = 1.0
    for extent in buffer.shape:
        count *= getattr(extent, "value", float("inf"))
    return count


def _in_lanes(s: Schedule, knobs: Knobs, joined: list[Stage]) -> None:
    """What runs along a row: folded in lanes, or written in lanes."""
    first = joined[0]
    if len(first.loops) < 2 or extent_of(first.loops[1]) == 0:
        return
    loop = loop_named(s, first.loops[1].var.name)
    if any(stage.driven("reduction") for stage in joined):
        fold_in_lanes(s, loop, Plan(s, knobs, first).partials())
    else:
        _written_in_lanes(s, loop, knobs.choice("lanes", _LANES, default=64))


def _written_in_lanes(s: Schedule, loop: For, lanes: int) -> None:
    """A loop in vectors, and the rest, if there is one, in one that is shorter."""
    name, length = loop.var.name, extent_of(loop)
    if length is None:
        in_lanes(s, loop, lanes)
        return
    rest = length % lanes if length > lanes else 0
    parts = s.partition(name, length - rest) if rest else (name,)
    _, lane = s.split(parts[0], [None, min(lanes, length)])
    for each in (lane, *parts[1:]):
        s.vectorize(each)
