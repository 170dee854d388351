"""Barrier placement by data dependences, with guards for single-threaded parts.

Every thread runs the whole program. Loops of one kind are divided among the threads;
statements without such a loop are run by one thread. A barrier separates two of these
if one writes what the other accesses; there is none at the end.

A copy hinted `async` completes when its thread waits for it, so a barrier follows that
wait, before the first use. That nothing is used earlier is the schedule's
responsibility; the interpreter checks it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from tensorlang.codegen.copies import ASYNC, is_copy_sync
from tensorlang.errors import CodegenError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import allocations, reads, writes
from tensorlang.ir.visit import walk_statements

OWN: Final = ("register", "private")


@dataclass
class Access:
    """Buffers read and written since the last barrier."""

    reads: set[ir.Buffer] = field(default_factory=set)
    writes: set[ir.Buffer] = field(default_factory=set)

    def conflicts(self, read: set[ir.Buffer], write: set[ir.Buffer]) -> bool:
        """Whether accesses to these buffers must wait for the ones recorded here."""
        return bool(self.writes & (read | write) or self.reads & write)

    def join(self, other: Access) -> None:
        """Merge another record into this one."""
        self.reads |= other.reads
        self.writes |= other.writes


@dataclass
class Pending:
    """Accesses since the last barrier: `alone` by thread 0, `shared` by any thread."""

    alone: Access = field(default_factory=Access)
    shared: Access = field(default_factory=Access)

    def each(self) -> tuple[Access, Access]:
        """Both records."""
        return self.shared, self.alone

    def copy(self) -> Pending:
        """An independent copy."""
        made = Pending()
        made.join(self)
        return made

    def join(self, other: Pending) -> None:
        """Merge another record into this one."""
        self.alone.join(other.alone)
        self.shared.join(other.shared)


def copied(node: ir.Node) -> set[ir.Buffer]:
    """Buffers below a node that only asynchronous copies write."""
    found: dict[bool, set[ir.Buffer]] = {True: set(), False: set()}
    for part in walk_statements(node):
        if isinstance(part, ir.Store):
            found[ASYNC in part.hints].add(part.buffer)
    return found[True] - found[False]


class Barriers(ABC):
    """Walks a program in order, placing guards, divided loops and barriers."""

    scope: ClassVar[str]  # barriers' scope
    holder: ClassVar[str]  # kind of loop that is divided, for error messages

    def __init__(self, first: ir.Expr) -> None:
        """`first` is true in the one thread that runs undivided statements."""
        self.first = first
        self.pending = Pending()
        self.copied: set[ir.Buffer] = set()

    @abstractmethod
    def holds(self, stmt: ir.Stmt) -> bool:
        """Whether a statement contains a divided loop."""

    @abstractmethod
    def divides(self, stmt: ir.Stmt) -> bool:
        """Whether a statement is itself a divided loop."""

    @abstractmethod
    def divide(self, loop: ir.For) -> list[ir.Stmt]:
        """One thread's share of such a loop."""

    def is_apart(self, buffer: ir.Buffer) -> bool:
        """Whether each thread accesses only its own elements of a buffer."""
        del buffer
        return False

    def run(self, stmt: ir.Stmt) -> ir.Stmt:
        """The statements that every thread runs for a part of the program."""
        out: list[ir.Stmt] = []
        alone: list[ir.Stmt] = []

        def flush() -> None:
            if alone:
                out.append(ir.If(self.first, ir.seq(*alone)))
                alone.clear()

        for item in stmt.stmts if isinstance(stmt, ir.Seq) else (stmt,):
            if isinstance(item, ir.Alloc):
                out.append(item)
            elif isinstance(item, ir.Let) or is_copy_sync(item) or self.holds(item):
                flush()
                out.extend(self.team(item))
            else:
                waits = self.wait(item, alone=True)
                if waits:
                    flush()
                    out.extend(waits)
                alone.append(item)
        flush()
        return ir.seq(*out)

    def team(self, stmt: ir.Stmt) -> list[ir.Stmt]:
        """A statement that every thread executes."""
        match stmt:
            case ir.Let():
                return [*self.wait(stmt, alone=False), stmt]
            case ir.Evaluate(expr=ir.Call(name="wait_copies")):
                self.pending.shared.writes |= self.copied
                return [stmt]
            case ir.Evaluate():
                return [stmt]
            case ir.For() if self.divides(stmt):
                return [*self.wait(stmt, alone=False), *self.divide(stmt)]
            case ir.For():
                waits = self.wait(stmt.extent, alone=False)
                return [*waits, replace(stmt, body=self.repeat(stmt.body, None))]
            case ir.While():
                waits = self.wait(stmt.cond, alone=False)
                return [*waits, replace(stmt, body=self.repeat(stmt.body, stmt.cond))]
            case ir.If():
                waits = self.wait(stmt.cond, alone=False)
                return [*waits, *self.ahead(stmt), self.branch(stmt)]
        raise CodegenError(f"a {type(stmt).__name__} cannot hold a {self.holder} loop")

    def wait(self, node: ir.Node, *, alone: bool) -> list[ir.Stmt]:
        """Record the accesses of a node; returns a barrier if they conflict."""
        own = set(allocations(node))
        read, write = (
            {b for b in found - own if b.scope not in OWN and not self.is_apart(b)}
            for found in (reads(node), writes(node))
        )
        started = {b for b in copied(node) if b not in own}
        self.copied |= started
        others = [self.pending.shared] if alone else [*self.pending.each()]
        found: list[ir.Stmt] = []
        if any(access.conflicts(read, write) for access in others):
            found = [ir.Barrier(self.scope)]
            self.pending = Pending()
        mine = self.pending.alone if alone else self.pending.shared
        mine.join(Access(read, write - started))
        return found

    def ahead(self, stmt: ir.If) -> list[ir.Stmt]:
        """Barriers to hoist before a branch; none here."""
        del stmt
        return []

    def repeat(self, body: ir.Stmt, cond: ir.Expr | None) -> ir.Stmt:
        """A loop body: its start may conflict with its own end."""
        before = self.pending.copy()
        self.run(body)
        if cond is not None:
            self.wait(cond, alone=False)
        self.pending.join(before)
        result = self.run(body)
        waits = [] if cond is None else self.wait(cond, alone=False)
        self.pending.join(before)
        return ir.seq(result, *waits)

    def branch(self, stmt: ir.If) -> ir.If:
        """Both branches start from the same accesses; their records are merged."""
        before = self.pending.copy()
        then = self.run(stmt.then)
        after, self.pending = self.pending, before
        orelse = None if stmt.orelse is None else self.run(stmt.orelse)
        self.pending.join(after)
        return ir.If(stmt.cond, then, orelse)
