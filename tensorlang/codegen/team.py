"""Make the thread team explicit: work sharing, and barriers between stages.

A lowered function has two more scalars, `tid` and `team`. Every thread runs all of it:

    for i in parallel(n): S       ->    i_first: i64 = n * tid // team
                                        i_share: i64 = n * (tid + 1) // team - i_first
                                        for i in range(i_share): S[i_first + i]
    T (no parallel loop inside)   ->    if tid == 0: T

Loops, conditions and lets around parallel loops are executed redundantly. A barrier
separates two stages if one writes what the other accesses; there is none at the end.
`useful_threads`, the first let, is the number of threads that can have work; where it
is limited as each has memory of its own, `most_shares` is the number without that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from tensorlang.codegen.barriers import Barriers
from tensorlang.codegen.folding import add, make, maximum, mul, sub
from tensorlang.codegen.names import Names
from tensorlang.codegen.storage import on_stack
from tensorlang.codegen.unroll import specialise
from tensorlang.errors import CodegenError
from tensorlang.ir.contents import free_vars, loops, reads
from tensorlang.ir.dtypes import i64, u64
from tensorlang.ir.nodes import (
    Alloc,
    Buffer,
    Expr,
    For,
    Function,
    If,
    Let,
    Node,
    Seq,
    Stmt,
    Var,
    While,
    as_expr,
    seq,
)
from tensorlang.ir.visit import rebuild, replace_buffers, walk_statements

TID: Final = Var("tid", i64)
TEAM: Final = Var("team", i64)
USEFUL: Final = "useful_threads"
UNITS: Final = "most_shares"
RESERVED: Final = (TID.name, TEAM.name, USEFUL, UNITS)


def useful(function: Function) -> Expr:
    """A lowered function's number of threads with work, in terms of its scalars."""
    body = function.body
    for stmt in body.stmts if isinstance(body, Seq) else (body,):
        if isinstance(stmt, Let) and stmt.var.name == USEFUL:
            return stmt.value
    raise CodegenError(f"{function.name} was not lowered: it has no {USEFUL!r}")


def share(function: Function, names: Names, threads: int) -> Function:
    """The function as each thread of the team runs it; `threads` caps private memory.

    Nothing else in it may have a name in `RESERVED`.
    """
    if has_parallel(function.body):
        body = _promote(function.body)
        units, wanted = _useful(function, body, threads)
        staged = _Stages(names).run(body)
    else:
        units = wanted = as_expr(1)
        staged = If(TID.equal(0), function.body)
    head = [Let(Var(USEFUL, i64), wanted)]
    if wanted != units:
        head.append(Let(Var(UNITS, i64), units))
    scalars = (*function.scalars, TID, TEAM)
    return replace(function, scalars=scalars, body=seq(*head, staged))


def has_parallel(stmt: Node) -> bool:
    """Whether there is a parallel loop in `stmt`."""
    return any(loop.kind == "parallel" for loop in loops(stmt))


def _outermost(stmt: Stmt) -> Iterable[For]:
    """The parallel loops that are not nested in another."""
    stack: list[Node] = [stmt]
    while stack:
        node = stack.pop()
        if isinstance(node, For) and node.kind == "parallel":
            yield node
        elif isinstance(node, Seq):
            stack.extend(node.stmts)
        elif isinstance(node, (For, While)):
            stack.append(node.body)
        elif isinstance(node, If):
            stack += [node.then, *([node.orelse] if node.orelse else [])]


def _useful(function: Function, body: Stmt, threads: int) -> tuple[Expr, Expr]:
    """The largest extent of a parallel loop, and the number of threads for it.

    An extent that varies counts as the target's threads.
    """
    wanted: Expr = as_expr(1)
    private = False
    for loop in sorted(_outermost(body), key=lambda loop: loop.var.name):
        extent = loop.extent
        if not free_vars(extent) <= set(function.scalars) or reads(extent):
            extent = as_expr(threads)
        wanted = maximum(extent, wanted)
        private = private or any(
            not on_stack(node.buffer)
            for node in walk_statements(loop)
            if isinstance(node, Alloc)
        )
    return wanted, make("min", wanted, as_expr(threads)) if private else wanted


def _promote(body: Stmt) -> Stmt:
    """Make scratch that is allocated between parallel loops shared by the team."""
    moved = {
        buffer: replace(buffer, scope="global")
        for buffer in _host_scratch(body)
        if buffer.scope in ("register", "private")
    }
    return replace_buffers(body, moved) if moved else body


def _host_scratch(stmt: Stmt) -> Iterable[Buffer]:
    """Buffers allocated by statements that every thread runs."""
    for item in stmt.stmts if isinstance(stmt, Seq) else (stmt,):
        match item:
            case Alloc():
                yield item.buffer
            case For(kind="parallel"):
                continue
            case For() | While() if has_parallel(item):
                yield from _host_scratch(item.body)
            case If() if has_parallel(item):
                yield from _host_scratch(item.then)
                yield from _host_scratch(item.orelse or Seq(()))


class _Stages(Barriers):
    """Places guards, shares of parallel loops, and barriers."""

    scope = "team"
    holder = "parallel"

    def __init__(self, names: Names) -> None:
        super().__init__(TID.equal(0))
        self.names = names

    def divides(self, stmt: Stmt) -> bool:
        """Whether a statement is a parallel loop."""
        return isinstance(stmt, For) and stmt.kind == "parallel"

    def holds(self, stmt: Stmt) -> bool:
        """Whether there is a parallel loop in a statement."""
        return has_parallel(stmt)

    def divide(self, loop: For) -> list[Stmt]:
        """One thread's contiguous chunk of a parallel loop."""
        name = loop.var.name
        first = self.names.var(f"{name}_first", i64)
        count = self.names.var(f"{name}_share", i64)
        whole = maximum(loop.extent.cast(i64), as_expr(0))
        start = _divided(mul(whole, TID))
        stop = _divided(mul(whole, TID + 1))
        position = add(first, Var(name, i64)).cast(loop.var.dtype)
        body = specialise(serial(loop.body), {loop.var: position}, {})
        return [
            Let(first, start),
            Let(count, sub(stop, first)),
            For(Var(name, i64), count, "serial", body),
        ]


def _divided(count: Expr) -> Expr:
    """`count // team`, unsigned: neither is negative."""
    return (count.cast(u64) // TEAM.cast(u64)).cast(i64)


def serial(stmt: Stmt) -> Stmt:
    """A statement with its parallel loops made serial."""

    def visit(node: Node) -> Node:
        if not isinstance(node, Stmt):
            return node
        new = rebuild(node, visit)
        if isinstance(new, For) and new.kind == "parallel":
            return replace(new, kind="serial")
        return new

    return visit(stmt)  # type: ignore[return-value]


def shares(function: Function) -> frozenset[Var]:
    """Variables holding the bounds of a thread's chunks, in a lowered function."""
    return frozenset(
        stmt.var
        for stmt in walk_statements(function.body)
        if isinstance(stmt, Let) and TID in free_vars(stmt.value)
    )
