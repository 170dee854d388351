"""Staged loops: the parts of a pipelined loop's body, and rings of buffers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace as with_fields

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import blocks, free_vars, reads, writes
from tensorlang.ir.dtypes import i64
from tensorlang.ir.visit import fresh, rebuild, rewriter
from tensorlang.scheduling.analysis.extents import steady
from tensorlang.scheduling.analysis.legality import legality


@frozen
class Parts:
    """A loop's body: allocations kept, staged buffers, their copies, and the rest."""

    loop: ir.For
    kept: tuple[ir.Alloc, ...]
    staged: tuple[ir.Buffer, ...]
    fetch: tuple[ir.Stmt, ...]
    compute: tuple[ir.Stmt, ...]


def parts_of(loop: ir.For) -> Parts:
    """Split the body; staged buffers are those filled only from outside the loop.

    Raises:
        ScheduleError: there are none.
    """
    body = loop.body.stmts if isinstance(loop.body, ir.Seq) else (loop.body,)
    allocs = [stmt for stmt in body if isinstance(stmt, ir.Alloc)]
    own = {stmt.buffer for stmt in allocs}
    changed = writes(loop.body)
    steps = [stmt for stmt in body if not isinstance(stmt, ir.Alloc)]
    fetch = [
        s
        for s in steps
        if reads(s) and writes(s) and writes(s) <= own and not reads(s) & changed
    ]
    filled = {buffer for stmt in fetch for buffer in writes(stmt)}
    compute = [stmt for stmt in steps if stmt not in fetch]
    staged = tuple(a.buffer for a in allocs if a.buffer in filled)
    if not staged or not compute:
        raise ScheduleError(
            f"loop {loop.var.name!r} stages nothing: cache_read what it reads, at this "
            "loop, and pipeline it then"
        )
    kept = tuple(a for a in allocs if a.buffer not in filled)
    return Parts(loop, kept, staged, tuple(fetch), tuple(compute))


def checked(loop: ir.For) -> Parts:
    """The parts of a loop that may be staged.

    Raises:
        ScheduleError: it stages nothing, or a rule is violated.
    """
    parts = parts_of(loop)
    steady([loop], loop.body)
    in_order(loop, parts)
    filled_first(parts)
    folded_or_not(parts)
    return parts


@legality("a stage is filled before it is used, and by nothing else")
def filled_first(parts: Parts) -> str | None:
    """The computation neither writes staged buffers nor precedes the copies."""
    loop = parts.loop
    body = loop.body.stmts if isinstance(loop.body, ir.Seq) else (loop.body,)
    begun = False
    for stmt in body:
        used = (reads(stmt) | writes(stmt)) & set(parts.staged)
        if stmt in parts.fetch and begun and used:
            return f"loop {loop.var.name!r} goes on filling {_named(used)} after a use"
        if stmt in parts.compute:
            begun = begun or bool(used)
            if writes(stmt) & set(parts.staged):
                return (
                    f"loop {loop.var.name!r} changes {_named(used)} besides filling "
                    "it: cache_read a copy that is only read"
                )
    return None


@legality("iterations of a pipelined loop run in order")
def in_order(loop: ir.For, parts: Parts) -> str | None:
    """The loop is serial, and defines no lets that its stages need."""
    if loop.kind != "serial":
        return f"loop {loop.var.name!r} is {loop.kind}: pipeline it while it is serial"
    if any(isinstance(stmt, ir.Let) for stmt in parts.compute):
        return (
            f"loop {loop.var.name!r} names values in its body, outside of blocks: "
            "pipeline it before these are there"
        )
    return None


@legality("a stage is spatial or reduced in a block")
def folded_or_not(parts: Parts) -> str | None:
    """The loop does not drive both an output index and a reduction of one block."""
    var = parts.loop.var
    for stmt in parts.compute:
        for block in blocks(stmt):
            if not reads(block) & set(parts.staged) or block.init == ir.seq():
                continue
            kinds = {a.kind for a in block.axes if var in free_vars(a.value)}
            starts = block.init is not None and reads(block.init) & set(parts.staged)
            if starts and "reduction" in kinds:
                return (
                    f"block {block.name!r} starts its sums from what is staged: "
                    "decompose the reduction first"
                )
            if len(kinds & {"spatial", "reduction"}) > 1:
                return (
                    f"loop {var.name!r} drives axes of block {block.name!r} that are "
                    "spatial, and others that it folds over: split the loop, or "
                    "decompose the reduction first"
                )
    return None


def _named(buffers: Iterable[ir.Buffer]) -> str:
    return ", ".join(sorted(repr(buffer.name) for buffer in buffers))


def with_stages(buffer: ir.Buffer, stages: int, taken: set[str]) -> ir.Buffer:
    """A temporary with room for several iterations, the stage being its first index."""
    layout = buffer.layout
    if layout is not None:
        stage = ir.Var(fresh("stage", taken), i64)
        layout = ir.IndexMap((stage, *layout.vars), (stage, *layout.results))
    return with_fields(buffer, shape=(ir.as_expr(stages), *buffer.shape), layout=layout)


def in_stage(
    stmt: ir.Stmt,
    ring: dict[ir.Buffer, ir.Buffer],
    index: ir.Expr,
    taken: set[str],
    *,
    counted: bool = False,
) -> ir.Stmt:
    """A statement on an iteration's stage: each of its blocks gets one more axis.

    Args:
        ring: The buffers with stages, by those without.
        index: The iteration.
        taken: Names in use.
        counted: Whether iterations are counted across several loops: their stage then
            is no part of a reduction.
    """
    count = next(iter(ring.values())).shape[0]

    @rewriter
    def visit(node: ir.Node, stage: ir.Expr) -> ir.Node:
        if isinstance(node, ir.Buffer):
            return node
        if isinstance(node, ir.Block) and (reads(node) | writes(node)) & ring.keys():
            kind = "spatial" if counted else _kind(node, stage)
            var = ir.Var(fresh("stage", taken), i64)
            init = None if node.init is None else visit(node.init, var)
            return with_fields(
                node,
                axes=(*node.axes, ir.Axis(var, kind, count, stage)),
                body=visit(node.body, var),
                init=init,
            )
        new = rebuild(node, lambda child: visit(child, stage))
        if isinstance(new, (ir.Load, ir.Store)) and new.buffer in ring:
            at = (stage, *new.indices)
            return with_fields(new, buffer=ring[new.buffer], indices=at)
        return new

    return visit(stmt, ir.Binary("floormod", index, count))


def _kind(block: ir.Block, stage: ir.Expr) -> str:
    """The kind of a stage axis: of reduction kind if the loop drives a reduction."""
    moving = free_vars(stage)
    folds = (a for a in block.axes if a.kind == "reduction")
    return "reduction" if any(free_vars(a.value) & moving for a in folds) else "spatial"
