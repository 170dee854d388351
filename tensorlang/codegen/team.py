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
from tensorlang.codegen.vectors.unroll import specialise
from tensorlang.errors import CodegenError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars, loops, reads
from tensorlang.ir.dtypes import i64, u64
from tensorlang.ir.visit import rebuild, replace_buffers, walk_statements

TID: Final = ir.Var("tid", i64)
TEAM: Final = ir.Var("team", i64)
USEFUL: Final = "useful_threads"
UNITS: Final = "most_shares"
RESERVED: Final = (TID.name, TEAM.name, USEFUL, UNITS)


def useful(function: ir.Function) -> ir.Expr:
    """A lowered function's number of threads with work, in terms of its scalars."""
    body = function.body
    for stmt in body.stmts if isinstance(body, ir.Seq) else (body,):
        if isinstance(stmt, ir.Let) and stmt.var.name == USEFUL:
            return stmt.value
    raise CodegenError(f"{function.name} was not lowered: it has no {USEFUL!r}")


def share(function: ir.Function, names: Names, threads: int) -> ir.Function:
    """The function as each thread of the team runs it; `threads` caps private memory.

    Nothing else in it may have a name in `RESERVED`.
    """
    if has_parallel(function.body):
        body = _promote(function.body)
        units, wanted = _useful(function, body, threads)
        staged = _Stages(names).run(body)
    else:
        units = wanted = ir.as_expr(1)
        staged = ir.If(TID.equal(0), function.body)
    head = [ir.Let(ir.Var(USEFUL, i64), wanted)]
    if wanted != units:
        head.append(ir.Let(ir.Var(UNITS, i64), units))
    scalars = (*function.scalars, TID, TEAM)
    return replace(function, scalars=scalars, body=ir.seq(*head, staged))


def has_parallel(stmt: ir.Node) -> bool:
    """Whether there is a parallel loop in `stmt`."""
    return any(loop.kind == "parallel" for loop in loops(stmt))


def _outermost(stmt: ir.Stmt) -> Iterable[ir.For]:
    """The parallel loops that are not nested in another."""
    stack: list[ir.Node] = [stmt]
    while stack:
        node = stack.pop()
        if isinstance(node, ir.For) and node.kind == "parallel":
            yield node
        elif isinstance(node, ir.Seq):
            stack.extend(node.stmts)
        elif isinstance(node, (ir.For, ir.While)):
            stack.append(node.body)
        elif isinstance(node, ir.If):
            stack += [node.then, *([node.orelse] if node.orelse else [])]


def _useful(
    function: ir.Function, body: ir.Stmt, threads: int
) -> tuple[ir.Expr, ir.Expr]:
    """The largest extent of a parallel loop, and the number of threads for it.

    An extent that varies counts as the target's threads.
    """
    wanted: ir.Expr = ir.as_expr(1)
    private = False
    for loop in sorted(_outermost(body), key=_constant_first):
        extent = loop.extent
        if not free_vars(extent) <= set(function.scalars) or reads(extent):
            extent = ir.as_expr(threads)
        wanted = maximum(extent, wanted)
        private = private or any(
            not on_stack(node.buffer)
            for node in walk_statements(loop)
            if isinstance(node, ir.Alloc)
        )
    return wanted, make("min", wanted, ir.as_expr(threads)) if private else wanted


def _constant_first(loop: ir.For) -> tuple[bool, str]:
    """An order in which a maximum that exceeds others is known before those."""
    return not isinstance(loop.extent, ir.Const), loop.var.name


def _promote(body: ir.Stmt) -> ir.Stmt:
    """Make scratch that is allocated between parallel loops shared by the team."""
    moved = {
        buffer: replace(buffer, scope="global")
        for buffer in _host_scratch(body)
        if buffer.scope in ("register", "private")
    }
    return replace_buffers(body, moved) if moved else body


def _host_scratch(stmt: ir.Stmt) -> Iterable[ir.Buffer]:
    """Buffers allocated by statements that every thread runs."""
    for item in stmt.stmts if isinstance(stmt, ir.Seq) else (stmt,):
        match item:
            case ir.Alloc():
                yield item.buffer
            case ir.For(kind="parallel"):
                continue
            case ir.For() | ir.While() if has_parallel(item):
                yield from _host_scratch(item.body)
            case ir.If() if has_parallel(item):
                yield from _host_scratch(item.then)
                yield from _host_scratch(item.orelse or ir.Seq(()))


class _Stages(Barriers):
    """Places guards, shares of parallel loops, and barriers."""

    scope = "team"
    holder = "parallel"

    def __init__(self, names: Names) -> None:
        super().__init__(TID.equal(0))
        self.names = names

    def divides(self, stmt: ir.Stmt) -> bool:
        """Whether a statement is a parallel loop."""
        return isinstance(stmt, ir.For) and stmt.kind == "parallel"

    def holds(self, stmt: ir.Stmt) -> bool:
        """Whether there is a parallel loop in a statement."""
        return has_parallel(stmt)

    def divide(self, loop: ir.For) -> list[ir.Stmt]:
        """One thread's contiguous chunk of a parallel loop."""
        name = loop.var.name
        first = self.names.var(f"{name}_first", i64)
        count = self.names.var(f"{name}_share", i64)
        whole = maximum(loop.extent.cast(i64), ir.as_expr(0))
        start = _divided(mul(whole, TID))
        stop = _divided(mul(whole, TID + 1))
        position = add(first, ir.Var(name, i64)).cast(loop.var.dtype)
        body = specialise(serial(loop.body), {loop.var: position}, {})
        return [
            ir.Let(first, start),
            ir.Let(count, sub(stop, first)),
            ir.For(ir.Var(name, i64), count, "serial", body),
        ]


def _divided(count: ir.Expr) -> ir.Expr:
    """`count // team`, unsigned: neither is negative."""
    return (count.cast(u64) // TEAM.cast(u64)).cast(i64)


def serial(stmt: ir.Stmt) -> ir.Stmt:
    """A statement with its parallel loops made serial."""

    def visit(node: ir.Node) -> ir.Node:
        if not isinstance(node, ir.Stmt):
            return node
        new = rebuild(node, visit)
        if isinstance(new, ir.For) and new.kind == "parallel":
            return replace(new, kind="serial")
        return new

    return visit(stmt)  # type: ignore[return-value]


def shares(function: ir.Function) -> frozenset[ir.Var]:
    """Variables holding the bounds of a thread's chunks, in a lowered function."""
    return frozenset(
        stmt.var
        for stmt in walk_statements(function.body)
        if isinstance(stmt, ir.Let) and TID in free_vars(stmt.value)
    )
