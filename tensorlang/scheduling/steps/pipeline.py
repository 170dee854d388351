"""`pipeline` and `double_buffer`: prefetch a loop's staged data while it computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from dataclasses import replace as with_fields
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import blocks, free_vars, names, reads, writes
from tensorlang.ir.dtypes import i64
from tensorlang.ir.integers.bounds import ranges_in
from tensorlang.ir.integers.size_bounds import size_ranges
from tensorlang.ir.natives import commit_copies, wait_copies
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.ir.visit import (
    fresh,
    rebuild,
    rewriter,
    substitute,
    transform_statements,
)
from tensorlang.scheduling.analysis import tree
from tensorlang.scheduling.analysis.extents import steady
from tensorlang.scheduling.analysis.facts import Ranges
from tensorlang.scheduling.analysis.legality import legality
from tensorlang.scheduling.primitives import primitive

MOST_STAGES: Final = 8


@dataclass(frozen=True, slots=True)
class _Parts:
    """A loop's body: allocations kept, staged buffers, their copies, and the rest."""

    loop: ir.For
    kept: tuple[ir.Alloc, ...]
    staged: tuple[ir.Buffer, ...]
    fetch: tuple[ir.Stmt, ...]
    compute: tuple[ir.Stmt, ...]


def _parts(loop: ir.For) -> _Parts:
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
        s for s in steps if writes(s) and writes(s) <= own and not reads(s) & changed
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
    return _Parts(loop, kept, staged, tuple(fetch), tuple(compute))


@legality("a stage is filled before it is used, and by nothing else")
def filled_first(parts: _Parts) -> str | None:
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
def in_order(loop: ir.For, parts: _Parts) -> str | None:
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
def folded_or_not(parts: _Parts) -> str | None:
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


@primitive
def pipeline(func: ir.Function, loop: str, stages: int) -> ir.Function:
    """Prefetch a loop's staged data `stages - 1` iterations ahead, asynchronously.

    Each staged temporary (a `cache_read` at the loop) becomes a ring buffer of several
    iterations. On targets with asynchronous copies (`cp.async` from sm_80 on) they
    overlap with the computation; elsewhere they are plain stores.

    Args:
        func: The function.
        loop: The loop's name.
        stages: The number of iterations buffered, from 2 to 8.

    Raises:
        ScheduleError: the loop stages nothing, modifies staged data, or is not serial.

    Before:

        for k in range(8):
            t = alloc(f32[16], scope="shared")
            for i in range(16):
                with block("t_copy", v=spatial(128, k * 16 + i), w=spatial(16, i)):
                    t[w] = x[v]
            for i_1 in range(16):
                with block("y", vi=spatial(16, i_1), vk=reduction(8, k)):
                    reduce(sum, y[vi], t[vi])

    After `pipeline("k", 3)`:

        t = alloc(f32[3, 16], scope="shared")
        for k_first in range(2):
            if k_first < 8:
                for i in range(16):
                    with block("t_copy_first", v=spatial(128, k_first * 16 + i),
                               w=spatial(16, i), stage=spatial(3, k_first % 3)):
                        store(t[stage, w], x[v], hints=("async",))
            evaluate(commit_copies())
        for k in range(8):
            evaluate(wait_copies(1))
            if k + 2 < 8:
                for i_2 in range(16):
                    with block("t_copy", v=spatial(128, (k + 2) * 16 + i_2), ...,
                               stage=spatial(3, (k + 2) % 3)):
                        store(t[stage, w], x[v], hints=("async",))
            evaluate(commit_copies())
            for i_1 in range(16):
                with block("y", vi=spatial(16, i_1), vk=reduction(8, k),
                           stage_2=reduction(3, k % 3)):
                    reduce(sum, y[vi], t[stage_2, vi])
    """
    if not 2 <= stages <= MOST_STAGES:
        raise ScheduleError(f"pipeline takes 2 to {MOST_STAGES} stages, not {stages}")
    return _staged(func, tree.find_loop(func, loop), stages, ahead=True)


@primitive
def double_buffer(func: ir.Function, loop: str) -> ir.Function:
    """Double-buffer a loop's staged data: load the next iteration's before computing.

    Like `pipeline` with two stages, with plain loads and stores, for every target.

    Args:
        func: The function.
        loop: The loop's name.

    Raises:
        ScheduleError: as `pipeline`.

    Before:

        for k in range(8):
            t = alloc(f32[16], scope="shared")
            ... fill t for k
            ... compute from t

    After `double_buffer("k")`:

        t = alloc(f32[2, 16], scope="shared")
        for k_first in range(1):
            ... fill t[0] for 0
        for k in range(8):
            if k + 1 < 8:
                ... fill t[(k + 1) % 2] for k + 1
            ... compute from t[k % 2]
    """
    return _staged(func, tree.find_loop(func, loop), 2, ahead=False)


def _staged(
    func: ir.Function, path: tree.Path, stages: int, *, ahead: bool
) -> ir.Function:
    loop = tree.loop_of(path)
    parts = _parts(loop)
    steady([loop], loop.body)
    in_order(loop, parts)
    filled_first(parts)
    folded_or_not(parts)
    taken = names(func)
    ring = {b: _with_stages(b, stages, taken) for b in parts.staged}
    first = ir.Var(fresh(f"{loop.var.name}_first", taken), i64)
    ranges = {**ranges_in(func.body, size_ranges(func)), first: (0, stages - 2)}
    early = _fetched(parts, ring, first, taken, ranges, ahead=ahead, new=True)
    later = loop.var + (stages - 1)
    late = _fetched(parts, ring, later, taken, ranges, ahead=ahead, new=False)
    commit = [ir.Evaluate(commit_copies())] if ahead else []
    wait = [ir.Evaluate(wait_copies(stages - 2))] if ahead else []
    prologue = ir.For(
        first,
        ir.as_expr(stages - 1),
        "serial",
        ir.seq(_if_in_range(first, loop.extent, early), commit),
    )
    body = ir.seq(
        *parts.kept,
        wait,
        _if_in_range(later, loop.extent, late),
        commit,
        *(_in_stage(s, ring, loop.var, taken) for s in parts.compute),
    )
    made = with_fields(loop, body=body)
    return tree.replace(path, ir.seq(*map(ir.Alloc, ring.values()), prologue, made))


def _if_in_range(index: ir.Expr, extent: ir.Expr, stmts: list[ir.Stmt]) -> ir.Stmt:
    """The copies for an iteration, if there is one."""
    return ir.If(index < extent, ir.seq(*stmts))


def _with_stages(buffer: ir.Buffer, stages: int, taken: set[str]) -> ir.Buffer:
    """A temporary with room for several iterations, the stage being its first index."""
    layout = buffer.layout
    if layout is not None:
        stage = ir.Var(fresh("stage", taken), i64)
        layout = ir.IndexMap((stage, *layout.vars), (stage, *layout.results))
    return with_fields(buffer, shape=(ir.as_expr(stages), *buffer.shape), layout=layout)


def _fetched(
    parts: _Parts,
    ring: dict[ir.Buffer, ir.Buffer],
    index: ir.Expr,
    taken: set[str],
    ranges: Ranges,
    *,
    ahead: bool,
    new: bool,
) -> list[ir.Stmt]:
    """The copies that fill an iteration's stage; renamed if `new`."""
    made = []
    for stmt in parts.fetch:
        done = _in_stage(stmt, ring, parts.loop.var, taken)
        done = substitute(done, {parts.loop.var: index})
        done = _simplified(_copied(done) if ahead else done, ranges)
        made.append(tree.rename(done, taken, "_first") if new else done)
    return made


def _simplified(stmt: ir.Stmt, ranges: Ranges) -> ir.Stmt:
    """Simplify axis values such as `(k + 1) * 16`."""

    def change(part: ir.Stmt) -> ir.Stmt:
        if not isinstance(part, ir.Block):
            return part
        values = [simplify(axis.value, ranges) for axis in part.axes]
        pairs = zip(part.axes, values, strict=True)
        return with_fields(part, axes=tuple(with_fields(a, value=v) for a, v in pairs))

    return transform_statements(stmt, change)


def _copied(stmt: ir.Stmt) -> ir.Stmt:
    """The statement with its copies hinted `async`."""

    def change(part: ir.Stmt) -> ir.Stmt:
        if isinstance(part, ir.Store) and _is_copy(part.value):
            return with_fields(part, hints=(*part.hints, "async"))
        return part

    return transform_statements(stmt, change)


def _is_copy(value: ir.Expr) -> bool:
    while isinstance(value, ir.Select) and simplify(value.b) == ir.Const(
        0, value.dtype
    ):
        value = value.a
    return isinstance(value, ir.Load) and value.buffer.scope == "global"


def _in_stage(
    stmt: ir.Stmt, ring: dict[ir.Buffer, ir.Buffer], index: ir.Expr, taken: set[str]
) -> ir.Stmt:
    """A statement on an iteration's stage: each of its blocks gets one more axis."""
    count = next(iter(ring.values())).shape[0]
    own = ir.Binary("floormod", index, count)

    @rewriter
    def visit(node: ir.Node, stage: ir.Expr) -> ir.Node:
        if isinstance(node, ir.Buffer):
            return node
        if isinstance(node, ir.Block) and (reads(node) | writes(node)) & ring.keys():
            return _with_axis(node, own, count, visit, taken)
        new = rebuild(node, lambda child: visit(child, stage))
        if isinstance(new, (ir.Load, ir.Store)) and new.buffer in ring:
            at = (stage, *new.indices)
            return with_fields(new, buffer=ring[new.buffer], indices=at)
        return new

    return visit(stmt, own)


def _with_axis(
    block: ir.Block,
    value: ir.Expr,
    count: ir.Expr,
    visit: Callable[[ir.Stmt, ir.Expr], ir.Stmt],
    taken: set[str],
) -> ir.Block:
    """A block with a stage axis, of reduction kind if the loop drives a reduction."""
    stage = ir.Var(fresh("stage", taken), i64)
    moving = free_vars(value)
    folds = any(
        a.kind == "reduction" and free_vars(a.value) & moving for a in block.axes
    )
    axis = ir.Axis(stage, "reduction" if folds else "spatial", count, value)
    init = None if block.init is None else visit(block.init, stage)
    body = visit(block.body, stage)
    return with_fields(block, axes=(*block.axes, axis), body=body, init=init)
