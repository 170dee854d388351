"""The inside of a launch: all threads of a block run its whole body.

    t = alloc(f32[256])                   t = alloc(f32[256], scope="shared")
    for j in bound(256, "thread.x"):      for thread in bound(256, "thread.x"):
        t[j] = S                   ->         t[thread] = S
    for k in bound(128, "thread.x"):          barrier("block")
        y[i, k] = T                           if thread < 128:
    y[i, 128] = U                                 y[i, thread] = T
                                              if thread == 0:
                                                  y[i, 128] = U

Loops over threads that follow each other become one, with a guard where they differ in
length and a barrier where one needs what another wrote. What stands in no loop over
threads is run by the first one alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from tensorlang.codegen.barriers import OWN, Barriers, Pending
from tensorlang.codegen.copies import is_copy_sync
from tensorlang.codegen.names import Names
from tensorlang.codegen.simt.ownership import owned
from tensorlang.codegen.simt.privatise import privatise
from tensorlang.codegen.unroll import specialise
from tensorlang.errors import CodegenError
from tensorlang.ir.contents import loops, reads, writes
from tensorlang.ir.dtypes import i64
from tensorlang.ir.nodes import (
    Alloc,
    Barrier,
    Buffer,
    Const,
    Expr,
    For,
    If,
    Node,
    Seq,
    Stmt,
    Var,
    as_expr,
    seq,
)
from tensorlang.ir.visit import rebuild, replace_buffers, rewriter

BLOCKS: Final = ("block.x", "block.y", "block.z")
THREADS: Final = ("thread.x", "thread.y", "thread.z")
SHARED_BYTES: Final = 16 << 10  # above, a block's scratch is in the workspace


def has_bound(node: Node, among: Sequence[str] = BLOCKS + THREADS) -> bool:
    """Whether a loop below is bound to one of these indices."""
    return any(loop.thread in among for loop in loops(node) if loop.thread)


def share_among_threads(body: Stmt, names: Names) -> Stmt:
    """A block's scratch, then its threads, each of which runs the whole body."""
    extents = _extents(body)
    variables = {index: names.var(_NAMES[index], i64) for index in extents}
    held = tuple(_scratch(body))
    body, own = privatise(_without(body, held), held)
    left = tuple(b for b in held if b.name not in {made.name for made in own})
    body, scratch = _block_scratch(body, left)
    inside = seq(*map(Alloc, own), _Threads(extents, variables, owned(body)).run(body))
    for index in extents:  # thread.x counts fastest: it stands innermost
        extent = as_expr(extents[index])
        inside = For(variables[index], extent, "bound", inside, index)
    return seq(*map(Alloc, scratch), inside)


_NAMES: Final = dict(zip(THREADS, ("thread", "thread_y", "thread_z"), strict=True))


def _extents(body: Stmt) -> dict[str, int]:
    """How many threads a block has along each index; at least one of `thread.x`."""
    found = {"thread.x": 1}
    for index in THREADS:
        for loop in loops(body):
            if loop.thread != index:
                continue
            if not isinstance(loop.extent, Const):
                raise CodegenError(
                    f"loop {loop.var.name} is bound to {index}, but its extent "
                    f"{loop.extent!r} varies; split it by a constant first"
                )
            found[index] = max(found.get(index, 1), int(loop.extent.value))
    return found


def _scratch(stmt: Stmt) -> Iterable[Buffer]:
    """What is allocated by statements that all threads of a block run."""
    match stmt:
        case Seq():
            for item in stmt.stmts:
                yield from _scratch(item)
        case Alloc():
            yield stmt.buffer
        case For(kind="bound"):
            return
        case For() if has_bound(stmt):
            yield from _scratch(stmt.body)
        case If() if has_bound(stmt):
            yield from _scratch(stmt.then)
            yield from _scratch(stmt.orelse or Seq(()))


def _without(stmt: Stmt, scratch: tuple[Buffer, ...]) -> Stmt:
    """The statement without the allocations of these buffers."""

    @rewriter
    def visit(node: Node) -> Node:
        if isinstance(node, Seq):
            kept = (s for s in node.stmts if not _allocates(s, scratch))
            return seq(*map(visit, kept))
        if not isinstance(node, Stmt):
            return node
        return rebuild(node, visit)

    return Seq(()) if _allocates(stmt, scratch) else visit(stmt)


def _allocates(stmt: Stmt, scratch: tuple[Buffer, ...]) -> bool:
    return isinstance(stmt, Alloc) and stmt.buffer in scratch


def _block_scratch(
    body: Stmt, buffers: tuple[Buffer, ...]
) -> tuple[Stmt, tuple[Buffer, ...]]:
    """A block's own memory: shared where it is small, else in the workspace."""
    moved: dict[Buffer, Buffer] = {}
    for buffer in buffers:
        size = size_in_bytes(buffer)
        fits = size is not None and size <= SHARED_BYTES
        scope = buffer.scope if buffer.scope == "shared" else "global"
        moved[buffer] = replace(buffer, scope="shared" if fits else scope)
    return replace_buffers(body, moved), tuple(moved.values())


def size_in_bytes(buffer: Buffer) -> int | None:
    """The size of a flattened buffer, where it is known."""
    total = buffer.dtype.bytes
    for extent in buffer.shape:
        if not isinstance(extent, Const):
            return None
        total *= int(extent.value)
    return total


class _Threads(Barriers):
    """What each thread of a block runs; barriers between those that need it."""

    scope = "block"
    holder = "thread"

    def __init__(
        self,
        extents: dict[str, int],
        variables: dict[str, Var],
        owned: frozenset[Buffer],
    ) -> None:
        """`owned` is memory of which each thread touches its own part only."""
        tests = [variables[i].equal(0) for i, n in extents.items() if n > 1]
        super().__init__(_all(tests))
        self.owned = owned
        self.extents = extents
        self.variables = variables

    def is_apart(self, buffer: Buffer) -> bool:
        """Whether threads never touch each other's elements of a buffer."""
        return buffer in self.owned

    def holds(self, stmt: Stmt) -> bool:
        """Whether a statement holds a loop over threads."""
        return is_copy_sync(stmt) or has_bound(stmt, THREADS)

    def divides(self, stmt: Stmt) -> bool:
        """Whether a statement is a loop over threads."""
        return isinstance(stmt, For) and stmt.kind == "bound"

    def ahead(self, stmt: If) -> list[Stmt]:
        """A barrier before a branch whose threads must wait for what was done before.

        Inside, what follows the branch could not count on it.
        """
        read = {b for b in reads(stmt) if b.scope not in OWN}
        write = {b for b in writes(stmt) if b.scope not in OWN}
        if not any(access.conflicts(read, write) for access in self.pending.each()):
            return []
        self.pending = Pending()
        return [Barrier(self.scope)]

    def divide(self, loop: For) -> list[Stmt]:
        """One thread's iteration, guarded where there are more threads than those."""
        values: dict[Var, Expr] = {}
        guards: list[Expr] = []
        idle = dict(self.extents)
        body: Stmt = loop
        while isinstance(body, For) and body.kind == "bound" and body.thread in idle:
            var, extent = self.variables[body.thread], body.extent
            values[body.var] = var.cast(body.var.dtype)
            if isinstance(extent, Const) and extent.value < self.extents[body.thread]:
                guards.append(var < extent.cast(i64))
            idle.pop(body.thread)
            body = body.body
        if self.holds(body):
            raise CodegenError("loops over threads stand directly inside one another")
        guards += [self.variables[i].equal(0) for i, n in idle.items() if n > 1]
        made = specialise(body, values, {})
        return [If(_all(guards), made) if guards else made]


def _all(tests: list[Expr]) -> Expr:
    cond: Expr = as_expr(True)
    for number, test in enumerate(tests):
        cond = test if number == 0 else cond & test
    return cond
