"""The team made explicit: who runs what, and where they wait for each other.

A lowered function has two more scalars, `tid` and `team`. Every thread runs it whole:

    for i in parallel(n): S       ->    i_first: i64 = n * tid // team
                                        i_share: i64 = n * (tid + 1) // team - i_first
                                        for i in range(i_share): S[i_first + i]
    T (no parallel loop inside)   ->    if tid == 0: T

Loops, conditions and lets around parallel loops are run by every thread alike. A
barrier stands between two stages where one writes what the other uses, and none at the
end. `useful_threads`, the first let, says how many threads can have work.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from tensorlang.codegen.folding import add, make, maximum, mul, sub
from tensorlang.codegen.names import Names
from tensorlang.codegen.storage import on_stack
from tensorlang.codegen.unroll import specialise
from tensorlang.errors import CodegenError
from tensorlang.ir.dtypes import i64, u64
from tensorlang.ir.nodes import (
    Alloc,
    Barrier,
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
from tensorlang.ir.visit import (
    allocations,
    free_vars,
    loops,
    reads,
    rebuild,
    replace_buffers,
    walk,
    writes,
)

TID: Final = Var("tid", i64)
TEAM: Final = Var("team", i64)
USEFUL: Final = "useful_threads"
RESERVED: Final = (TID.name, TEAM.name, USEFUL)


def useful(function: Function) -> Expr:
    """How many threads can have work, of a lowered function: over its scalars."""
    body = function.body
    for stmt in body.stmts if isinstance(body, Seq) else (body,):
        if isinstance(stmt, Let) and stmt.var.name == USEFUL:
            return stmt.value
    raise CodegenError(f"{function.name} was not lowered: it has no {USEFUL!r}")


def share(function: Function, names: Names, threads: int) -> Function:
    """The function as one thread of a team runs it; `threads` caps private memory.

    Nothing else in it has one of the names `RESERVED`.
    """
    if has_parallel(function.body):
        body = _promote(function.body)
        wanted = _useful(function, body, threads)
        staged = _Stages(names).run(body)
    else:
        wanted = as_expr(1)
        staged = If(TID.equal(0), function.body)
    head = Let(Var(USEFUL, i64), wanted)
    scalars = (*function.scalars, TID, TEAM)
    return replace(function, scalars=scalars, body=seq(head, staged))


def has_parallel(stmt: Node) -> bool:
    """Whether the team shares some loop below `stmt`."""
    return any(loop.kind == "parallel" for loop in loops(stmt))


def _outermost(stmt: Stmt) -> Iterable[For]:
    """The parallel loops that are not inside another one."""
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


def _useful(function: Function, body: Stmt, threads: int) -> Expr:
    """The largest extent of a shared loop; the target's threads where it varies."""
    wanted: Expr = as_expr(1)
    private = False
    for loop in sorted(_outermost(body), key=lambda loop: loop.var.name):
        extent = loop.extent
        if not free_vars(extent) <= set(function.scalars) or reads(extent):
            extent = as_expr(threads)
        wanted = maximum(extent, wanted)
        private = private or any(
            not on_stack(node.buffer) for node in walk(loop) if isinstance(node, Alloc)
        )
    return make("min", wanted, as_expr(threads)) if private else wanted


def _promote(body: Stmt) -> Stmt:
    """Scratch allocated between the team's loops belongs to the team, not a thread."""
    moved = {
        buffer: replace(buffer, scope="global")
        for buffer in _host_scratch(body)
        if buffer.scope in ("register", "private")
    }
    return replace_buffers(body, moved) if moved else body


def _host_scratch(stmt: Stmt) -> Iterable[Buffer]:
    """What is allocated by statements that every thread runs."""
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


@dataclass
class _Access:
    """What was read and written since the last barrier, by thread 0 and by all."""

    reads: set[Buffer] = field(default_factory=set)
    writes: set[Buffer] = field(default_factory=set)

    def conflicts(self, read: set[Buffer], write: set[Buffer]) -> bool:
        """Whether these accesses must wait for the ones recorded here."""
        return bool(self.writes & (read | write) or self.reads & write)

    def join(self, other: _Access) -> None:
        self.reads |= other.reads
        self.writes |= other.writes


@dataclass
class _Pending:
    """Unfinished accesses: `alone` by thread 0, `shared` by any thread."""

    alone: _Access = field(default_factory=_Access)
    shared: _Access = field(default_factory=_Access)

    def copy(self) -> _Pending:
        made = _Pending()
        made.join(self)
        return made

    def join(self, other: _Pending) -> None:
        self.alone.join(other.alone)
        self.shared.join(other.shared)


class _Stages:
    """Walks the host program in order, placing guards, shares and barriers."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.pending = _Pending()

    def run(self, stmt: Stmt) -> Stmt:
        """The statements that every thread runs for a part of the host program."""
        out: list[Stmt] = []
        alone: list[Stmt] = []

        def flush() -> None:
            if alone:
                out.append(If(TID.equal(0), seq(*alone)))
                alone.clear()

        for item in stmt.stmts if isinstance(stmt, Seq) else (stmt,):
            if isinstance(item, Alloc):
                out.append(item)
            elif isinstance(item, Let) or has_parallel(item):
                flush()
                out.extend(self.team(item))
            else:
                waits = self.wait(item, alone=True)
                if waits:
                    flush()
                    out.extend(waits)
                alone.append(item)
        flush()
        return seq(*out)

    def team(self, stmt: Stmt) -> list[Stmt]:
        """A statement that every thread takes part in."""
        match stmt:
            case Let():
                return [*self.wait(stmt, alone=False), stmt]
            case For(kind="parallel"):
                return [*self.wait(stmt, alone=False), *self.divide(stmt)]
            case For():
                waits = self.wait(stmt.extent, alone=False)
                return [*waits, replace(stmt, body=self.repeat(stmt.body, None))]
            case While():
                waits = self.wait(stmt.cond, alone=False)
                return [*waits, replace(stmt, body=self.repeat(stmt.body, stmt.cond))]
            case If():
                return [*self.wait(stmt.cond, alone=False), self.branch(stmt)]
        raise CodegenError(f"a {type(stmt).__name__} cannot hold a parallel loop")

    def wait(self, node: Node, *, alone: bool) -> list[Stmt]:
        """Record the accesses of a node; a barrier where they must wait."""
        own = set(allocations(node))
        read, write = set(reads(node)) - own, set(writes(node)) - own
        others = (
            [self.pending.shared]
            if alone
            else [
                self.pending.shared,
                self.pending.alone,
            ]
        )
        found: list[Stmt] = []
        if any(access.conflicts(read, write) for access in others):
            found = [Barrier("team")]
            self.pending = _Pending()
        mine = self.pending.alone if alone else self.pending.shared
        mine.join(_Access(read, write))
        return found

    def repeat(self, body: Stmt, cond: Expr | None) -> Stmt:
        """A body that runs again: its start waits for its own end."""
        before = self.pending.copy()
        self.run(body)
        if cond is not None:
            self.wait(cond, alone=False)
        self.pending.join(before)
        result = self.run(body)
        waits = [] if cond is None else self.wait(cond, alone=False)
        self.pending.join(before)
        return seq(result, *waits)

    def branch(self, stmt: If) -> If:
        """Both branches start from the same accesses; after them either may be."""
        before = self.pending.copy()
        then = self.run(stmt.then)
        after, self.pending = self.pending, before
        orelse = None if stmt.orelse is None else self.run(stmt.orelse)
        self.pending.join(after)
        return If(stmt.cond, then, orelse)

    def divide(self, loop: For) -> list[Stmt]:
        """One thread's contiguous part of a parallel loop."""
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
    """`count // team`, unsigned: both are known not to be negative."""
    return (count.cast(u64) // TEAM.cast(u64)).cast(i64)


def serial(stmt: Stmt) -> Stmt:
    """A statement whose parallel loops run one iteration after the other."""

    def visit(node: Node) -> Node:
        if not isinstance(node, Stmt):
            return node
        new = rebuild(node, visit)
        if isinstance(new, For) and new.kind == "parallel":
            return replace(new, kind="serial")
        return new

    return visit(stmt)  # type: ignore[return-value]


def shares(function: Function) -> frozenset[Var]:
    """The extents of the loops that run one thread's part, of a lowered function."""
    return frozenset(
        node.var
        for node in walk(function.body)
        if isinstance(node, Let) and TID in free_vars(node.value)
    )
