"""Random streams on a CPU: hashes in wide vectors, chunks to threads.

A hash is a chain of about sixty dependent operations: one vector at a time would be
latency bound, so the default runs four registers side by side. Results are written once
and not read again soon; the tuner decides on non-temporal stores.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tensorlang.ir.contents import blocks, loops
from tensorlang.ir.nodes import For, Function, Seq, Store, as_expr
from tensorlang.ir.visit import walk
from tensorlang.schedules.cost.core import core_of
from tensorlang.schedules.streaming import Stream, loop_named, stream, stream_knobs
from tensorlang.scheduling import Knobs, Schedule, schedule

_REGISTERS_SIDE_BY_SIDE: Final = 4
_ONE: Final = as_expr(1)


@schedule("threefry")
def random(s: Schedule, knobs: Knobs) -> None:
    """Stream every nest; in a batch of keys, rows go to threads.

    Single hashes, such as the remainder after the last whole one, stay as they are.
    """
    keys = next(b for b in s.function.buffers if b.dtype.is_integer)
    core = core_of(s.target, keys.dtype)
    width = core.lanes
    how = stream_knobs(knobs, core, _REGISTERS_SIDE_BY_SIDE * width)
    names = [[loop.var.name for loop in chain] for chain in nests(s.function)]
    for *rows, element in names:
        if rows:
            _batch(s, rows[0], element, how, width)
        elif not element.startswith("t") and loop_named(s, element).extent != _ONE:
            stream(s, element, how)
    if how.nontemporal:
        _past_the_caches(s)


def nests(func: Function) -> Iterator[list[For]]:
    """The perfectly nested loops of each outermost statement."""
    body = func.body.stmts if isinstance(func.body, Seq) else (func.body,)
    for stmt in body:
        chain: list[For] = []
        inner = stmt
        while isinstance(inner, For):
            chain.append(inner)
            inner = inner.body
        if chain:
            yield chain


def _batch(s: Schedule, row: str, element: str, how: Stream, width: int) -> None:
    """Many keys: vectorize across short rows, or along long ones."""
    long_row = s.specialize(row, loop_named(s, element).extent < how.lanes)
    rows, _, lanes = s.split(row, [None, how.chunk // _REGISTERS_SIDE_BY_SIDE, width])
    s.parallel(rows)
    s.vectorize(lanes)
    s.parallel(long_row)
    (along,) = (loop.var.name for loop in loops(loop_named(s, long_row).body))
    _, lanes = s.split(along, [None, how.lanes])
    s.vectorize(lanes)


def _past_the_caches(s: Schedule) -> None:
    for block in list(blocks(s.function.body)):
        for buffer in {n.buffer.name for n in walk(block) if isinstance(n, Store)}:
            s.hint(block.name, buffer, "nontemporal")
