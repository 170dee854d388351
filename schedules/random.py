"""Random streams on a CPU: hashes in wide vectors, chunks to threads.

A hash is a chain of some sixty dependent operations: one vector at a time would leave
the processor waiting, so the default runs four registers side by side. Results are
written once and not read again soon; the tuner decides whether they go past the caches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tensorlang.ir.contents import blocks, loops
from tensorlang.ir.nodes import For, Function, Seq, Store
from tensorlang.ir.visit import walk
from tensorlang.schedules.streaming import Stream, loop_named, stream, stream_knobs
from tensorlang.scheduling import Knobs, Schedule, schedule

_REGISTERS_SIDE_BY_SIDE: Final = 4
_ROWS_A_THREAD: Final = 16


@schedule("threefry")
def random(s: Schedule, knobs: Knobs) -> None:
    """Every nest streams; in a batch of keys, rows go to threads."""
    word = 8 * s.function.buffers[0].dtype.bytes
    width = s.target.lanes(word) if s.target else 16
    how = stream_knobs(knobs, lanes=_REGISTERS_SIDE_BY_SIDE * width)
    names = [[loop.var.name for loop in chain] for chain in nests(s.function)]
    for *rows, element in names:
        if rows:
            _batch(s, rows[0], element, how, width)
        elif not element.startswith("t"):  # the odd elements after the last hash
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
    """Many keys: vectors across many short rows, or along long ones."""
    long_row = s.specialize(row, loop_named(s, element).extent < how.lanes)
    rows, _, lanes = s.split(row, [None, _ROWS_A_THREAD, width])
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
