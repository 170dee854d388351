"""`share`: merge two identical copies into one."""

from __future__ import annotations

import dataclasses

from tensorlang.errors import ScheduleError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import binders, reads, writes
from tensorlang.ir.visit import replace_buffers, substitute, transform_statements
from tensorlang.scheduling.analysis.legality import legality
from tensorlang.scheduling.analysis.tree import alloc_of, find_alloc, replace
from tensorlang.scheduling.primitives import primitive


@primitive
def share(func: ir.Function, buffer: str, other: str) -> ir.Function:
    """Replace a temporary by another one with the same contents.

    Args:
        buffer: A temporary that one nest fills from memory that is not written.
        other: One that a later nest of the same sequence fills identically; it and its
            nest are removed.

    Raises:
        ScheduleError: the two nests are not in one sequence, differ, or copy what the
            function writes.

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
    another(buffer, other)
    first, second = find_alloc(func, buffer), find_alloc(func, other)
    kept, gone = alloc_of(first).buffer, alloc_of(second).buffer
    around = first[-2]
    if not isinstance(around, ir.Seq) or around is not second[-2]:
        raise ScheduleError(
            f"share: {buffer!r} and {other!r} are not allocated in one sequence"
        )
    if dataclasses.replace(gone, name=kept.name) != kept:
        raise ScheduleError(f"share: {buffer!r} and {other!r} do not hold the same")
    a, b = _maker(around, kept), _maker(around, gone)
    filled_by_one(around, kept)
    filled_by_one(around, gone)
    filled_earlier(around, (a, kept), (b, gone))
    constant_source(func, a, b)
    filled_alike((a, kept), (b, gone))
    left = (s for s in around.stmts if s is not b and s != ir.Alloc(gone))
    made = ir.seq(*(replace_buffers(stmt, {gone: kept}) for stmt in left))
    return replace(first[:-1], made)


def _maker(around: ir.Seq, buffer: ir.Buffer) -> ir.Stmt:
    """The nest that fills a temporary."""
    for stmt in around.stmts:
        if buffer in writes(stmt):
            return stmt
    raise ScheduleError(f"share: {buffer.name!r} is not filled by a nest of its own")


@legality("a copy is not shared with itself")
def another(buffer: str, other: str) -> str | None:
    """The two temporaries are distinct."""
    if buffer == other:
        return f"share: {buffer!r} and {other!r} are one temporary"
    return None


@legality("a shared copy is filled by a nest of its own")
def filled_by_one(around: ir.Seq, buffer: ir.Buffer) -> str | None:
    """Nothing else writes it, and the nest writes nothing else."""
    found = [stmt for stmt in around.stmts if buffer in writes(stmt)]
    if len(found) != 1 or buffer in reads(found[0]) or writes(found[0]) != {buffer}:
        return f"share: {buffer.name!r} is not filled by a nest of its own"
    return None


@legality("a shared copy is filled before all of its readers")
def filled_earlier(
    around: ir.Seq, a: tuple[ir.Stmt, ir.Buffer], b: tuple[ir.Stmt, ir.Buffer]
) -> str | None:
    """The copy that stays is filled before the one that goes."""
    first = next(stmt for stmt in around.stmts if stmt is a[0] or stmt is b[0])
    if first is not a[0]:
        return f"share: {a[1].name!r} is filled after {b[1].name!r}"
    return None


@legality("the source of shared copies is constant")
def constant_source(func: ir.Function, *nests: ir.Stmt) -> str | None:
    """The function does not write the sources of the copies."""
    for source in frozenset().union(*(reads(nest) for nest in nests)):
        if source in writes(func.body):
            return (
                f"share: {source.name!r} is written, and may differ between its copies"
            )
    return None


@legality("shared copies have the same contents")
def filled_alike(
    a: tuple[ir.Stmt, ir.Buffer], b: tuple[ir.Stmt, ir.Buffer]
) -> str | None:
    """The two nests differ only in names."""
    (nest, kept), (other, gone) = a, b
    if _unnamed(nest) != _unnamed(replace_buffers(other, {gone: kept})):
        return f"share: {kept.name!r} and {gone.name!r} do not hold the same"
    return None


def _unnamed(nest: ir.Stmt) -> ir.Stmt:
    """The nest with its variables numbered and its blocks unnamed."""
    own: dict[ir.Var, ir.Expr] = {}
    for number, var in enumerate(binders(nest)):
        own.setdefault(var, ir.Var(f"@{number}", var.dtype))

    def unnamed(stmt: ir.Stmt) -> ir.Stmt:
        return (
            dataclasses.replace(stmt, name="") if isinstance(stmt, ir.Block) else stmt
        )

    return transform_statements(substitute(nest, own), unnamed)
