"""A host program of launches: each outermost bound nest is one, and nothing else is.

    for i in bound(m, "block.x"):         for i in bound(m, "block.x"):
        t = alloc(f32[256])                   t = alloc(f32[256], scope="shared")
        for j in bound(256, "thread.x"):      for thread in bound(256, "thread.x"):
            t[j] = S                   ->         t[thread] = S
        for k in bound(128, "thread.x"):          barrier("block")
            y[i, k] = T                           if thread < 128:
        y[i, 128] = U                                 y[i, thread] = T
                                                  if thread == 0:
                                                      y[i, 128] = U

All threads of a block run its whole body; loops over threads that follow each other
become one, with a guard where they differ in length and a barrier where one needs what
another wrote. What stands in no loop over threads is run by the first one alone.
Statements without any bound loop are launches of a single thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Final

from tensorlang.codegen.barriers import OWN, Barriers, Pending
from tensorlang.codegen.copies import is_copy_sync
from tensorlang.codegen.names import Names
from tensorlang.codegen.simt.ownership import owned
from tensorlang.codegen.simt.privatise import privatise
from tensorlang.codegen.team import serial
from tensorlang.codegen.unroll import specialise
from tensorlang.errors import CodegenError
from tensorlang.ir.dtypes import i64
from tensorlang.ir.nodes import (
    Alloc,
    Barrier,
    Buffer,
    Const,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Node,
    Seq,
    Stmt,
    Var,
    as_expr,
    seq,
)
from tensorlang.ir.visit import (
    loops,
    reads,
    rebuild,
    replace_buffers,
    substitute,
    walk,
    writes,
)

BLOCKS: Final = ("block.x", "block.y", "block.z")
THREADS: Final = ("thread.x", "thread.y", "thread.z")
SHARED_BYTES: Final = 16 << 10  # above, a block's scratch is in the workspace


def make_launches(function: Function, names: Names) -> Function:
    """The function as allocations, host control flow, and launches.

    Raises:
        CodegenError: the host would have to read what a launch computes, or a nest is
            bound in a way that no launch has.
    """
    function = replace(function, body=serial(function.body))
    return replace(function, body=seq(*_Host(names).run(function.body)))


def _is_for_threads(value: Expr) -> bool:
    """Whether the host has no such number: a float, or a vector such as a mask."""
    kept = value.dtype.is_float or value.dtype.lanes > 1
    return kept and not any(isinstance(node, Load) for node in walk(value))


def is_launch(stmt: Stmt) -> bool:
    """Whether a statement of a host program is a launch."""
    return isinstance(stmt, For) and stmt.kind == "bound"


def has_bound(node: Node, among: Sequence[str] = BLOCKS + THREADS) -> bool:
    """Whether a loop below is bound to one of these indices."""
    return any(loop.thread in among for loop in loops(node) if loop.thread)


class _Host:
    """Walks the host program; what holds no bound loop is gathered for one thread."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def run(self, stmt: Stmt) -> list[Stmt]:
        """The host statements of a part of the program."""
        out: list[Stmt] = []
        alone: list[Stmt] = []
        inside: dict[Var, Expr] = {}
        for given in stmt.stmts if isinstance(stmt, Seq) else (stmt,):
            item = substitute(given, inside)
            if isinstance(item, Let) and _is_for_threads(item.value):
                inside[item.var] = item.value
                continue
            if not isinstance(item, (Alloc, Let)) and not has_bound(item):
                alone.append(item)
                continue
            out += self.single(alone)
            alone = []
            out.append(self.statement(item))
        return _global_scratch([*out, *self.single(alone)])

    def single(self, alone: list[Stmt]) -> list[Stmt]:
        """A launch of one thread for these statements, if there are any."""
        if not alone:
            return []
        var = self.names.var("block", i64)
        made = self.launch(For(var, as_expr(1), "bound", seq(*alone), "block.x"))
        some = _something_to_do(alone)
        return [made if some is None else If(some, made)]

    def statement(self, stmt: Stmt) -> Stmt:
        """One statement that the host runs or launches."""
        match stmt:
            case For(kind="bound"):
                return self.launch(stmt)
            case Alloc():
                return stmt
            case Let(value=decided):
                made: Stmt = stmt
            case For(extent=decided):
                made = replace(stmt, kind="serial", body=seq(*self.run(stmt.body)))
            case If(cond=decided):
                orelse = None if stmt.orelse is None else seq(*self.run(stmt.orelse))
                made = If(decided, seq(*self.run(stmt.then)), orelse)
            case _:
                raise CodegenError(
                    f"a {type(stmt).__name__} around bound loops would have the host "
                    "wait for each launch; bind a loop around it"
                )
        if reads(decided):
            raise CodegenError(
                f"the host cannot read {decided!r} between launches; bind a loop around"
            )
        return made

    def launch(self, nest: Stmt) -> Stmt:
        """One bound nest: its block loops, then its threads, then what each runs."""
        around: list[For] = []
        while isinstance(nest, For) and nest.thread in BLOCKS:
            around.append(nest)
            nest = nest.body
        if has_bound(nest, BLOCKS):
            raise CodegenError("loops over blocks stand directly inside one another")
        if not around:
            var = self.names.var("block", i64)
            around = [For(var, as_expr(1), "bound", nest, "block.x")]
        for inner in reversed(around):
            nest = replace(inner, body=_threads(nest, self.names))
            break
        for outer in reversed(around[:-1]):
            nest = replace(outer, body=nest)
        return nest


def _something_to_do(stmts: Sequence[Stmt]) -> Expr | None:
    """Whether some loop runs, where the host can tell: tails often are empty."""
    tests: list[Expr] = []
    for stmt in stmts:
        if not isinstance(stmt, For) or isinstance(stmt.extent, Const):
            return None
        if reads(stmt.extent):
            return None
        tests.append(stmt.extent > Const(0, stmt.extent.dtype))
    return reduce(or_, tests) if tests else None


def _global_scratch(stmts: list[Stmt]) -> list[Stmt]:
    """What is allocated between launches lives in memory that all of them see."""
    moved = {
        stmt.buffer: replace(stmt.buffer, scope="global")
        for stmt in stmts
        if isinstance(stmt, Alloc) and stmt.buffer.scope != "global"
    }
    return [replace_buffers(stmt, moved) for stmt in stmts] if moved else stmts


# --------------------------------------------------------------- inside of a launch


def _threads(body: Stmt, names: Names) -> Stmt:
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

    def visit(node: Stmt) -> Stmt:
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
        while isinstance(body, For) and body.kind == "bound":
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
