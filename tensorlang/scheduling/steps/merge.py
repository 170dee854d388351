"""`merge`: fuse two consecutive loops (horizontal loop fusion)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as with_fields

from tensorlang.errors import ScheduleError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import allocations, binders
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.visit import substitute, walk
from tensorlang.scheduling.analysis.dependence import meetings
from tensorlang.scheduling.analysis.legality import legality
from tensorlang.scheduling.analysis.tree import Path, find_loop, loop_of, replace
from tensorlang.scheduling.primitives import primitive


@legality("merged loops have equal extents")
def equally_often(first: ir.For, second: ir.For) -> str | None:
    """Both loops have the same extent."""
    if linear(first.extent) == linear(second.extent):
        return None
    return (
        f"merge: loop {first.var.name!r} runs {first.extent!r} times and loop "
        f"{second.var.name!r} {second.extent!r}; partition the longer one"
    )


@legality("merged iterations conflict only with their own")
def only_their_own(first: ir.For, second: ir.For) -> str | None:
    """Only corresponding iterations of the two loops conflict.

    Iterations of the first loop then need not all precede those of the second.
    """
    body = substitute(second.body, {second.var: first.var})
    for why in meetings(first.body, body, {first.var}):
        return (
            f"merge: an iteration of loop {second.var.name!r} needs more than the same "
            f"one of loop {first.var.name!r}: {why}"
        )
    return None


@primitive
def merge(func: ir.Function, first: str, second: str) -> ir.Function:
    """Merge two consecutive loops into one, which keeps the first one's name.

    Args:
        first: A loop's name.
        second: The name of the loop that follows it, of the same extent.

    Raises:
        ScheduleError: other statements stand between them, their extents differ, or an
            iteration of the second one depends on a different one of the first.

    `merge("i", "i_1")`:

        for i in range(8):
            t[i] = x[i] * 2.0
        for i_1 in range(8):
            y[i_1] = t[i_1] + 1.0

        for i in range(8):
            t[i] = x[i] * 2.0
            y[i] = t[i] + 1.0
    """
    path, other = find_loop(func, first), find_loop(func, second)
    a, b = loop_of(path), loop_of(other)
    around = _neighbours(path, other)
    equally_often(a, b)
    body = substitute(b.body, {b.var: a.var})
    for name in _in_force(a) & {n.name for n in _named(b.body)}:
        raise ScheduleError(
            f"merge: something inside of loop {second!r} is called {name!r}, as in "
            f"loop {first!r}; rename one of them"
        )
    only_their_own(a, b)
    start = next(n for n, stmt in enumerate(around.stmts) if stmt is a)
    stop = next(n for n, stmt in enumerate(around.stmts) if stmt is b)
    between = around.stmts[start + 1 : stop]
    made = with_fields(a, body=ir.seq(a.body, body))
    stmts = (*around.stmts[:start], *between, made, *around.stmts[stop + 1 :])
    return replace(path[:-1], ir.seq(*stmts))


def _in_force(loop: ir.For) -> set[str]:
    """The names a loop's body would leave in scope after it."""
    body = loop.body.stmts if isinstance(loop.body, ir.Seq) else (loop.body,)
    outer = (stmt for stmt in body if isinstance(stmt, (ir.Let, ir.Alloc)))
    return {loop.var.name, *(n.name for stmt in outer for n in _named(stmt))}


def _named(node: ir.Stmt) -> Iterator[ir.Var | ir.Buffer]:
    """The variables and temporaries that a statement introduces."""
    yield from binders(node)
    yield from allocations(node)


def _neighbours(first: Path, second: Path) -> ir.Seq:
    """The sequence in which both loops stand, one after the other."""
    a, b, around = loop_of(first), loop_of(second), first[-2]
    if (
        isinstance(around, ir.Seq)
        and around is second[-2]
        and len(first) == len(second)
    ):
        places = [n for n, s in enumerate(around.stmts) if s is a or s is b]
        between = around.stmts[places[0] + 1 : places[-1]]
        ordered = around.stmts[places[0]] is a and len(places) == 2
        if ordered and all(isinstance(stmt, ir.Alloc) for stmt in between):
            _plain(a)
            _plain(b)
            return around
    raise ScheduleError(
        f"merge: loop {b.var.name!r} does not directly follow loop {a.var.name!r}; "
        "only allocations may be between the two"
    )


def _plain(loop: ir.For) -> None:
    loads = [n for n in walk(loop.extent) if isinstance(n, ir.Load)]
    if loop.kind != "serial" or loads:
        raise ScheduleError(
            f"merge: loop {loop.var.name!r} is {loop.kind} or has an extent that is "
            "read from memory; merge loops before they are annotated"
        )
