"""`pipeline` and `double_buffer`: prefetch a loop's staged data while it computes."""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import names
from tensorlang.ir.dtypes import i64
from tensorlang.ir.integers.bounds import ranges_in
from tensorlang.ir.integers.size_bounds import size_ranges
from tensorlang.ir.natives import commit_copies, wait_copies
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.ir.visit import fresh, substitute, transform_statements
from tensorlang.scheduling.analysis import tree
from tensorlang.scheduling.analysis.facts import Ranges
from tensorlang.scheduling.primitives import primitive
from tensorlang.scheduling.steps.roles import in_blocks, in_roles
from tensorlang.scheduling.steps.staged import Parts, checked, in_stage, with_stages

MOST_STAGES: Final = 8


@primitive
def pipeline(
    func: ir.Function,
    loop: str,
    stages: int,
    *,
    roles: bool = False,
    blocks: int | None = None,
    in_flight: int = 0,
) -> ir.Function:
    """Prefetch a loop's staged data `stages - 1` iterations ahead, asynchronously.

    Each staged temporary (a `cache_read` at the loop) becomes a ring buffer of several
    iterations. On targets with asynchronous copies (`cp.async` from sm_80 on) they
    overlap with the computation; elsewhere they are plain stores.

    Args:
        loop: The loop's name.
        stages: The number of iterations buffered, from 2 to 8.
        roles: Whether warps of their own copy, and the others compute (warp
            specialization): see below.
        blocks: With roles: the number of blocks that stay, each of which runs through
            its share of the grid. Its producer copies ahead across these tiles.
        in_flight: With roles: the number of iterations whose products of warpgroups go
            on while the next one begins, fewer than `stages` and than the loop has.
            Stages are freed as many iterations later. An iteration has one product of
            each warpgroup, or two, its first and last statements (`rotation`).

    Raises:
        ScheduleError: the loop stages nothing, modifies staged data, or is not serial.
            With roles: no loop around it is bound to blocks, one between is not serial,
            or threads use each other's temporaries. There are blocks without roles, or
            fewer than one.

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

    With roles, both are programs of their own, of everything inside a block. A producer
    warpgroup of which one thread copies runs ahead by up to `stages` iterations; the
    threads of the computation are the consumers. Barrier objects count the iterations
    across all serial loops, `full` when the copies of one are there and `empty` when
    each consuming warp is done with one.

    Before:

        for b in bound(4, "block.x"):
            for k in range(8):
                t = alloc(f32[64], scope="shared")
                for i in range(64):
                    t[i] = x[b, k * 64 + i]
                for j in bound(128, "thread.x"):
                    ... compute from t

    After `pipeline("k", 3, roles=True)`:

        for b in bound(4, "block.x"):
            t = alloc(f32[3, 64], scope="shared")
            full = barrier_object(1, 3)
            empty = barrier_object(4, 3)
            for thread in bound(256, "thread.x"):
                with role(thread >= 128):
                    if thread == 128:
                        for k_copy in range(8):
                            wait(empty[k_copy % 3], k_copy // 3 - 1)
                            with arrive(full[k_copy % 3]):
                                for i in range(64):
                                    t[k_copy % 3, i] = x[b, k_copy * 64 + i]
                with role(thread < 128):
                    for k in range(8):
                        wait(full[k % 3], k // 3)
                        ... compute from t[k % 3]
                        if thread % 32 == 0:
                            arrive(empty[k % 3])
    """
    if not 2 <= stages <= MOST_STAGES:
        raise ScheduleError(f"pipeline takes 2 to {MOST_STAGES} stages, not {stages}")
    if blocks is not None:
        if not roles or blocks < 1:
            raise ScheduleError(
                f"blocks={blocks} and roles={roles}: at least one block stays, and "
                "blocks that do have roles"
            )
        func = in_blocks(func, loop, blocks)
    if not 0 <= in_flight < (stages if roles else 1):
        raise ScheduleError(
            f"in_flight={in_flight}, with {stages} stages and roles={roles}: products "
            "are in flight in roles, in fewer iterations than there are stages"
        )
    if roles:
        return in_roles(func, tree.find_loop(func, loop), stages, in_flight)
    return _staged(func, tree.find_loop(func, loop), stages, ahead=True)


@primitive
def double_buffer(func: ir.Function, loop: str) -> ir.Function:
    """Double-buffer a loop's staged data: load the next iteration's before computing.

    Like `pipeline` with two stages, with plain loads and stores, for every target.

    Args:
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
    parts = checked(loop)
    taken = names(func)
    ring = {b: with_stages(b, stages, taken) for b in parts.staged}
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
        *(in_stage(s, ring, loop.var, taken) for s in parts.compute),
    )
    made = with_fields(loop, body=body)
    return tree.replace(path, ir.seq(*map(ir.Alloc, ring.values()), prologue, made))


def _if_in_range(index: ir.Expr, extent: ir.Expr, stmts: list[ir.Stmt]) -> ir.Stmt:
    """The copies for an iteration, if there is one."""
    return ir.If(index < extent, ir.seq(*stmts))


def _fetched(
    parts: Parts,
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
        done = in_stage(stmt, ring, parts.loop.var, taken)
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
