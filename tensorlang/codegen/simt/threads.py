"""The inside of a launch: every thread of a block runs the whole body.

    t = alloc(f32[256])                   t = alloc(f32[256], scope="shared")
    for j in bound(256, "thread.x"):      for thread in bound(256, "thread.x"):
        t[j] = S                   ->         t[thread] = S
    for k in bound(128, "thread.x"):          barrier("block")
        y[i, k] = T                           if thread < 128:
    y[i, 128] = U                                 y[i, thread] = T
                                              if thread == 0:
                                                  y[i, 128] = U

Consecutive loops over threads are merged, with guards for shorter extents and barriers
for dependences. Statements outside of loops over threads are run by the first thread.
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
from tensorlang.codegen.vectors.unroll import specialise
from tensorlang.errors import CodegenError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import loops, reads, writes
from tensorlang.ir.dtypes import i64
from tensorlang.ir.visit import replace_buffers, transform_statements

BLOCKS: Final = ("block.x", "block.y", "block.z")
THREADS: Final = ("thread.x", "thread.y", "thread.z")
SHARED_BYTES: Final = 16 << 10  # larger block scratch is in the workspace


def has_bound(node: ir.Node, among: Sequence[str] = BLOCKS + THREADS) -> bool:
    """Whether a loop below is bound to one of these indices."""
    return any(loop.thread in among for loop in loops(node) if loop.thread)


def share_among_threads(body: ir.Stmt, names: Names) -> ir.Stmt:
    """A block's scratch, then its thread loops around the whole body."""
    extents = _extents(body)
    variables = {index: names.var(_NAMES[index], i64) for index in extents}
    held = tuple(_scratch(body))
    body, own = privatise(_without(body, held), held)
    left = tuple(b for b in held if b.name not in {made.name for made in own})
    body, scratch = _block_scratch(body, left)
    inside = ir.seq(
        *map(ir.Alloc, own), _Threads(extents, variables, owned(body)).run(body)
    )
    for index in extents:  # thread.x varies fastest: it is innermost
        extent = ir.as_expr(extents[index])
        inside = ir.For(variables[index], extent, "bound", inside, index)
    return ir.seq(*map(ir.Alloc, scratch), inside)


_NAMES: Final = dict(zip(THREADS, ("thread", "thread_y", "thread_z"), strict=True))


def _extents(body: ir.Stmt) -> dict[str, int]:
    """Threads of a block along each index; at least one along `thread.x`."""
    found = {"thread.x": 1}
    for index in THREADS:
        for loop in loops(body):
            if loop.thread != index:
                continue
            if not isinstance(loop.extent, ir.Const):
                raise CodegenError(
                    f"loop {loop.var.name} is bound to {index}, but its extent "
                    f"{loop.extent!r} varies; split it by a constant first"
                )
            found[index] = max(found.get(index, 1), int(loop.extent.value))
    return found


def _scratch(stmt: ir.Stmt) -> Iterable[ir.Buffer]:
    """Buffers allocated by statements that all threads of a block run."""
    match stmt:
        case ir.Seq():
            for item in stmt.stmts:
                yield from _scratch(item)
        case ir.Alloc():
            yield stmt.buffer
        case ir.For(kind="bound"):
            return
        case ir.For() if has_bound(stmt):
            yield from _scratch(stmt.body)
        case ir.If() if has_bound(stmt):
            yield from _scratch(stmt.then)
            yield from _scratch(stmt.orelse or ir.Seq(()))


def _without(stmt: ir.Stmt, scratch: tuple[ir.Buffer, ...]) -> ir.Stmt:
    """The statement without the allocations of these buffers."""

    def left(part: ir.Stmt) -> ir.Stmt:
        if isinstance(part, ir.Alloc) and part.buffer in scratch:
            return ir.Seq(())
        return part

    return transform_statements(stmt, left)


def _block_scratch(
    body: ir.Stmt, buffers: tuple[ir.Buffer, ...]
) -> tuple[ir.Stmt, tuple[ir.Buffer, ...]]:
    """Place a block's scratch: in shared memory if small, else in the workspace."""
    moved: dict[ir.Buffer, ir.Buffer] = {}
    for buffer in buffers:
        size = size_in_bytes(buffer)
        fits = size is not None and size <= SHARED_BYTES
        scope = buffer.scope if buffer.scope == "shared" else "global"
        moved[buffer] = replace(buffer, scope="shared" if fits else scope)
    return replace_buffers(body, moved), tuple(moved.values())


def size_in_bytes(buffer: ir.Buffer) -> int | None:
    """The size of a flattened buffer in bytes; None if it is not constant."""
    total = buffer.dtype.bytes
    for extent in buffer.shape:
        if not isinstance(extent, ir.Const):
            return None
        total *= int(extent.value)
    return total


class _Threads(Barriers):
    """Places guards and barriers in the body that each thread of a block runs."""

    scope = "block"
    holder = "thread"

    def __init__(
        self,
        extents: dict[str, int],
        variables: dict[str, ir.Var],
        owned: frozenset[ir.Buffer],
    ) -> None:
        """`owned`: buffers of which each thread accesses only its own part."""
        tests = [variables[i].equal(0) for i, n in extents.items() if n > 1]
        super().__init__(_all(tests))
        self.owned = owned
        self.extents = extents
        self.variables = variables

    def is_apart(self, buffer: ir.Buffer) -> bool:
        """Whether each thread accesses only its own elements of a buffer."""
        return buffer in self.owned

    def holds(self, stmt: ir.Stmt) -> bool:
        """Whether a statement contains a loop over threads."""
        return is_copy_sync(stmt) or has_bound(stmt, THREADS)

    def divides(self, stmt: ir.Stmt) -> bool:
        """Whether a statement is a loop over threads."""
        return isinstance(stmt, ir.For) and stmt.kind == "bound"

    def ahead(self, stmt: ir.If) -> list[ir.Stmt]:
        """A barrier before a branch that conflicts with earlier accesses.

        Inside the branch, statements after it could not rely on the barrier.
        """
        read = {b for b in reads(stmt) if b.scope not in OWN}
        write = {b for b in writes(stmt) if b.scope not in OWN}
        if not any(access.conflicts(read, write) for access in self.pending.each()):
            return []
        self.pending = Pending()
        return [ir.Barrier(self.scope)]

    def divide(self, loop: ir.For) -> list[ir.Stmt]:
        """One thread's iteration, guarded if there are more threads than iterations."""
        values: dict[ir.Var, ir.Expr] = {}
        guards: list[ir.Expr] = []
        idle = dict(self.extents)
        body: ir.Stmt = loop
        while isinstance(body, ir.For) and body.kind == "bound" and body.thread in idle:
            var, extent = self.variables[body.thread], body.extent
            values[body.var] = var.cast(body.var.dtype)
            if (
                isinstance(extent, ir.Const)
                and extent.value < self.extents[body.thread]
            ):
                guards.append(var < extent.cast(i64))
            idle.pop(body.thread)
            body = body.body
        if self.holds(body):
            raise CodegenError("loops over threads must be perfectly nested")
        guards += [self.variables[i].equal(0) for i, n in idle.items() if n > 1]
        made = specialise(body, values, {})
        return [ir.If(_all(guards), made) if guards else made]


def _all(tests: list[ir.Expr]) -> ir.Expr:
    cond: ir.Expr = ir.as_expr(True)
    for number, test in enumerate(tests):
        cond = test if number == 0 else cond & test
    return cond
