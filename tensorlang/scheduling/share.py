"""`share`: two copies of the same become one."""

from __future__ import annotations

import dataclasses
from typing import Any

from tensorlang.errors import ScheduleError
from tensorlang.ir.nodes import (
    Alloc,
    Block,
    Buffer,
    Function,
    IndexMap,
    Node,
    Reducer,
    Seq,
    Stmt,
    Var,
    seq,
)
from tensorlang.ir.visit import binders, reads, rebuild, replace_buffers, writes
from tensorlang.scheduling.primitives import primitive
from tensorlang.scheduling.tree import alloc_of, find_alloc, replace


@primitive
def share(func: Function, buffer: str, other: str) -> Function:
    """Read one temporary in place of another one that holds the same.

    Args:
        func: The function.
        buffer: A temporary that one nest fills, of what nothing else writes.
        other: One that a later nest of the same statements fills in the same way; it
            and its nest are gone afterwards.

    Raises:
        ScheduleError: the two nests do not stand in one sequence, differ, or copy what
            the function writes.

    `share("a", "b")`:

        for i in range(8):                  for i in range(8):
            a = alloc(f32[5])                   a = alloc(f32[5])
            for c in range(5):                  for c in range(5):
                a[c] = x[i, c]                      a[c] = x[i, c]
            ... a ...                 ->        ... a ...
            b = alloc(f32[5])
            for d in range(5):
                b[d] = x[i, d]
            ... b ...                           ... a ...
    """
    first, second = find_alloc(func, buffer), find_alloc(func, other)
    kept, gone = alloc_of(first).buffer, alloc_of(second).buffer
    around = first[-2]
    if not isinstance(around, Seq) or around is not second[-2]:
        raise ScheduleError(
            f"share: {buffer!r} and {other!r} are not allocated in one sequence"
        )
    a, b = _maker(around, kept), _maker(around, gone)
    stmts = list(around.stmts)
    if stmts.index(a) > stmts.index(b):
        raise ScheduleError(f"share: {buffer!r} is filled after {other!r}")
    _need_constant(func, a, b)
    like = dataclasses.replace(gone, name=kept.name)
    if like != kept or not _alike(a, replace_buffers(b, {gone: kept})):
        raise ScheduleError(f"share: {buffer!r} and {other!r} do not hold the same")
    left = (s for s in stmts if s is not b and s != Alloc(gone))
    made = seq(*(replace_buffers(stmt, {gone: kept}) for stmt in left))
    return replace(first[:-1], made)


def _maker(around: Seq, buffer: Buffer) -> Stmt:
    """The one nest that fills a temporary."""
    found = [stmt for stmt in around.stmts if buffer in writes(stmt)]
    if len(found) != 1 or buffer in reads(found[0]) or writes(found[0]) != {buffer}:
        raise ScheduleError(
            f"share: {buffer.name!r} is not filled by a nest of its own"
        )
    return found[0]


def _need_constant(func: Function, *nests: Stmt) -> None:
    """Refuse what reads memory that may change between the nests."""
    for source in frozenset().union(*(reads(nest) for nest in nests)):
        if source in writes(func.body):
            raise ScheduleError(
                f"share: {source.name!r} is written, and may differ between its copies"
            )


def _alike(a: Stmt, b: Stmt) -> bool:
    """Whether two nests differ in their own names only."""
    return _unnamed(a) == _unnamed(b)


def _unnamed(nest: Stmt) -> Stmt:
    """The nest with its variables numbered and its blocks without names."""
    own: dict[Node, Var] = {}
    for number, var in enumerate(binders(nest)):
        own.setdefault(var, Var(f"@{number}", var.dtype))

    def visit(node: Any) -> Any:
        if isinstance(node, (Reducer, IndexMap, Buffer)):
            return node
        if isinstance(node, Var):
            return own.get(node, node)
        made = rebuild(node, visit)
        return dataclasses.replace(made, name="") if isinstance(made, Block) else made

    return visit(nest)  # type: ignore[no-any-return]
