"""Warp specialization: roles for the copies of a staged loop and its computation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace as with_fields
from functools import reduce
from itertools import compress, pairwise
from operator import and_, mul
from typing import Final

import numpy as np

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.collectives import WARP, WARPGROUP
from tensorlang.ir.contents import free_vars, loops, names, writes
from tensorlang.ir.dtypes import i64
from tensorlang.ir.natives import wait_products
from tensorlang.ir.semantics import evaluate
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.ir.visit import (
    fresh,
    rebuild,
    rebuild_statements,
    replace_buffers,
    rewriter,
    substitute,
)
from tensorlang.scheduling.analysis import tree
from tensorlang.scheduling.analysis.group_accesses import kept_by_groups
from tensorlang.scheduling.steps.rotation import Step, products_in, rotated
from tensorlang.scheduling.steps.staged import Parts, checked, in_stage, with_stages

_REGISTERS: Final = 65536  # of a multiprocessor
_PRODUCER: Final = 40  # registers of a thread that copies
_MOST: Final = 240  # registers of a thread in a role


@frozen
class _Program:
    """What a block runs: a path from its outermost statement to the staged loop."""

    path: tree.Path  # path; all of its loops are serial
    parts: Parts  # parts of the staged loop
    threads: int  # threads that compute
    # temporaries that live across the loops over threads, in registers
    held: tuple[ir.Buffer, ...]
    # those in shared memory, parts of which each warpgroup keeps to itself
    passed: tuple[ir.Buffer, ...]

    @property
    def loops(self) -> tuple[ir.For, ...]:
        """The loops around an iteration, outermost first."""
        return tuple(node for node in self.path if isinstance(node, ir.For))

    def iteration(self) -> ir.Expr:
        """The number of an iteration, counted across all loops."""
        number: ir.Expr = ir.as_expr(0)
        for n, loop in enumerate(self.loops):
            number = number * loop.extent + loop.var if n else loop.var
        return number


@frozen
class _Ring:
    """The staged buffers with their stages, and the names of the barrier objects."""

    buffers: dict[ir.Buffer, ir.Buffer]
    stages: int
    full: str
    empty: str


def in_blocks(func: ir.Function, loop: str, blocks: int) -> ir.Function:
    """Bound the grid around a loop: each of so many blocks runs through its share.

    Raises:
        ScheduleError: the loops bound to blocks are none, or not perfectly nested.
    """
    path = tree.find_loop(func, loop)
    places = [n for n, x in enumerate(path) if isinstance(x, ir.For) and x.thread]
    grid = [x for x in path if isinstance(x, ir.For) and x.thread]
    if not grid or places[-1] - places[0] >= len(grid):
        raise ScheduleError(f"no perfect nest around {loop!r} is bound to blocks")
    taken = names(func)
    block, tile = (ir.Var(fresh(name, taken), i64) for name in ("first", "tile"))
    rest: ir.Expr = tile * blocks + block
    lets: list[ir.Stmt] = []
    own: dict[ir.Var, ir.Expr] = {}
    for bound in reversed(grid):
        last = bound is grid[0] and bound.extent != ir.as_expr(1)
        inner = simplify(rest if last else rest % bound.extent)
        rest = rest // bound.extent
        own[bound.var] = inner
        if not isinstance(inner, ir.Const):
            name = fresh(f"{tree.stem(bound.var.name)}_tile", taken)
            own[bound.var] = var = ir.Var(name, bound.var.dtype)
            lets.append(ir.Let(var, inner))
    total = reduce(mul, (bound.extent for bound in grid))
    count = simplify((total + (blocks - 1) - block) // blocks)
    share = ir.For(tile, count, "serial", ir.seq(*lets, substitute(grid[-1].body, own)))
    staying = simplify(ir.Binary("min", total, ir.as_expr(blocks)))
    made = ir.For(block, staying, "bound", share, "block.x")
    return tree.replace(path[: places[0] + 1], made)


def in_roles(
    func: ir.Function, path: tree.Path, stages: int, in_flight: int = 0
) -> ir.Function:
    """Split what a block does into the roles of a producer and of consumers.

    Raises:
        ScheduleError: the loop stages nothing, no loop around it is bound to blocks, or
            a rule is violated.
    """
    parts = checked(tree.loop_of(path))
    _enough_steps(parts.loop, in_flight)
    blocks = [n for n, x in enumerate(path) if isinstance(x, ir.For) and x.thread]
    if not blocks:
        raise ScheduleError(
            f"no loop around {parts.loop.var.name!r} is bound to blocks: bind one first"
        )
    top = path[: blocks[-1] + 2]
    program = _program(path[blocks[-1] + 1 :], parts)
    taken = names(func)
    buffers = {b: with_stages(b, stages, taken) for b in parts.staged}
    ring = _Ring(buffers, stages, fresh("full", taken), fresh("empty", taken))
    thread = ir.Var(fresh("thread", taken), i64)
    count = program.threads
    registers = _PRODUCER, _left(count)
    if _REGISTERS // (count + WARPGROUP) >= _MOST:  # enough without
        registers = 0, 0
    copying = _producer(program, ring, taken)
    computing = _consumer(program, ring, thread, taken, in_flight)
    roles = ir.seq(
        ir.Role(thread >= count, ir.If(thread.equal(count), copying), registers[0]),
        ir.Role(thread < count, computing, registers[1]),
    )
    made = ir.seq(
        *map(ir.Alloc, (*ring.buffers.values(), *program.passed)),
        *map(ir.Alloc, _in_registers(program).values()),
        ir.BarrierObject(ring.full, 1, stages),
        ir.BarrierObject(ring.empty, count // WARP, stages),
        ir.For(thread, ir.as_expr(count + WARPGROUP), "bound", roles, "thread.x"),
    )
    return tree.replace(top, made)


def _program(path: tree.Path, parts: Parts) -> _Program:
    root = _statement(path[0])
    if not all(isinstance(node, ir.Seq | ir.For) for node in path):
        raise ScheduleError(f"loop {parts.loop.var.name!r} is under a condition")
    threads = [loop for loop in loops(root) if loop.thread]
    counts = {tree.constant(loop.extent) or 0 for loop in threads}
    count = max(counts, default=0)
    if counts != {count} or count % WARPGROUP or not count:
        raise ScheduleError(
            f"the threads around loop {parts.loop.var.name!r} have {sorted(counts)} "
            f"iterations: all are to have the same multiple of {WARPGROUP} for roles"
        )
    own = {n.buffer for n in _outside(root) if isinstance(n, ir.Alloc)}
    kept = sorted(own - set(parts.staged), key=lambda buffer: buffer.name)
    held = tuple(buffer for buffer in kept if _by_threads(buffer, count))
    passed = tuple(buffer for buffer in kept if buffer not in held)
    made = _Program(path, parts, count, held, passed)
    _need_one_length(made.loops)
    _need_threads(root, parts)
    for buffer in passed:
        if buffer.scope != "shared" or not kept_by_groups(root, buffer):
            raise ScheduleError(
                f"{buffer.name!r} is shared by the {count} threads of a role, which do "
                "not meet: transform_layout its indices to a thread and to registers "
                "of it, or pass it inside of warpgroups"
            )
    return made


def _outside(stmt: ir.Stmt) -> Iterator[ir.Stmt]:
    """The statements that are not in loops over threads."""
    match stmt:
        case ir.Seq():
            for item in stmt.stmts:
                yield from _outside(item)
        case ir.For() if not stmt.thread:
            yield from _outside(stmt.body)
        case ir.If(then=then, orelse=None):
            yield from _outside(then)
        case _:
            yield stmt


def _need_one_length(around: Sequence[ir.For]) -> None:
    """Refuse loops whose iterations both roles could not count alike."""
    inside = {loop.var for loop in around}
    for loop in around:
        if loop.kind != "serial" or free_vars(loop.extent) & inside:
            raise ScheduleError(
                f"loop {loop.var.name!r} of {loop.extent!r} {loop.kind} iterations has "
                "roles inside: it is to be serial, and of one length"
            )


def _need_threads(root: ir.Stmt, parts: Parts) -> None:
    """Refuse computation outside of loops over threads."""
    for stmt in _outside(root):
        threads = isinstance(stmt, ir.For) and stmt.thread == "thread.x"
        copies = writes(stmt) and writes(stmt) <= set(parts.staged)
        if not (threads or copies or isinstance(stmt, ir.Alloc | ir.Let)):
            raise ScheduleError(
                f"{tree.called(stmt)} has no loop over threads: bind one of its loops"
            )


def _by_threads(buffer: ir.Buffer, threads: int) -> bool:
    """Whether a temporary is laid out by threads: the first place is a thread's."""
    shape = [tree.constant(extent) for extent in buffer.shape]
    if buffer.layout is None or len(buffer.layout.results) < 2 or None in shape:
        return False
    grid = np.indices([n or 0 for n in shape], np.int64)
    first = evaluate(
        buffer.layout.results[0], dict(zip(buffer.layout.vars, grid, strict=True))
    )
    return int(np.max(first)) == threads - 1


def _in_registers(program: _Program) -> dict[ir.Buffer, ir.Buffer]:
    return {b: with_fields(b, scope="register") for b in program.held}


def _left(threads: int) -> int:
    """Registers of a thread that computes."""
    left = (_REGISTERS - WARPGROUP * _PRODUCER) // threads // 8 * 8
    return min(left, _MOST)


def _producer(program: _Program, ring: _Ring, taken: set[str]) -> ir.Stmt:
    """The loops around the copies of an iteration, which wait for their stage."""
    number, stages = program.iteration(), ring.stages
    copies = [
        in_stage(stmt, ring.buffers, number, taken, counted=True)
        for stmt in program.parts.fetch
    ]
    body: ir.Stmt = ir.seq(
        ir.Wait(ring.empty, number % stages, number // stages - 1),
        ir.Arrive(ring.full, number % stages, ir.seq(*copies)),
    )
    for node in reversed(program.path):
        if isinstance(node, ir.Seq):
            body = ir.seq(*(x for x in node.stmts if isinstance(x, ir.Let)), body)
        elif isinstance(node, ir.For):
            body = with_fields(node, body=body)
    return renamed(body, program.path, taken)


def renamed(body: ir.Stmt, path: tree.Path, taken: set[str]) -> ir.Stmt:
    """A copy of the loops and values on a path, under names of their own."""
    bound = [node.var for node in path if isinstance(node, ir.For)]
    for node in path:
        if isinstance(node, ir.Seq):
            bound += [stmt.var for stmt in node.stmts if isinstance(stmt, ir.Let)]
    new = {var: with_fields(var, name=fresh(var.name, taken)) for var in bound}

    @rewriter
    def visit(node: ir.Node) -> ir.Node:
        return new.get(node, node) if isinstance(node, ir.Var) else rebuild(node, visit)

    return visit(body)


def _enough_steps(loop: ir.For, in_flight: int) -> None:
    """Refuse to leave all iterations in flight, or more than there are."""
    steps = tree.constant(loop.extent)
    if steps is not None and steps <= in_flight:
        raise ScheduleError(
            f"in_flight={in_flight}, but loop {loop.var.name!r} has {steps} "
            "iterations: leave products of fewer in flight"
        )


def _consumer(
    program: _Program, ring: _Ring, thread: ir.Var, taken: set[str], in_flight: int
) -> ir.Stmt:
    """Everything but the copies, by each thread; each warp frees the stages.

    They are those of as many iterations ago as are in flight, and the last ones after
    the loop.
    """
    number, stages, loop = program.iteration(), ring.stages, program.parts.loop

    def free(at: ir.Expr, *conds: ir.Expr) -> ir.Stmt:
        one = reduce(and_, conds, (thread % WARP).equal(0))
        stage = substitute(number, {loop.var: at}) % stages
        return ir.If(simplify(one), ir.Arrive(ring.empty, simplify(stage)))

    def wait(number: ir.Expr) -> ir.Stmt:
        return ir.Wait(ring.full, number % stages, number // stages)

    made: ir.Stmt
    if in_flight and len(products_in(program.parts.compute)) > 1:
        made = _rotated(program, ring, wait, free, taken)
        whole = tree.swap(_statement(program.path[0]), loop, made)
        return replace_buffers(
            _by(thread, program.passed)(whole), _in_registers(program)
        )
    begun = [loop.var >= in_flight] if in_flight else []
    waits = [ir.Evaluate(wait_products(in_flight))] if in_flight else []
    body = ir.seq(
        wait(number),
        *(
            in_stage(stmt, ring.buffers, number, taken, counted=True)
            for stmt in program.parts.compute
        ),
        *waits,
        free(loop.var - in_flight, *begun),
    )
    made = with_fields(loop, body=body)
    if in_flight:
        last = [loop.extent - n for n in range(in_flight, 0, -1)]
        rest = (free(at, at >= 0) for at in last)
        made = ir.seq(made, ir.Evaluate(wait_products(0)), *rest)
    whole = tree.swap(_statement(program.path[0]), loop, made)
    return replace_buffers(_by(thread, program.passed)(whole), _in_registers(program))


def _rotated(
    program: _Program,
    ring: _Ring,
    wait: Callable[[ir.Expr], ir.Stmt],
    free: Callable[..., ir.Stmt],
    taken: set[str],
) -> ir.Stmt:
    """The loop of the computation, in which two products go on during the rest."""
    loop, number = program.parts.loop, program.iteration()
    parts = Step.of(loop, program.parts.compute)

    def at(index: ir.Expr) -> ir.Expr:
        return simplify(substitute(number, {loop.var: index}))

    def step(index: ir.Expr) -> Step:
        def moved(stmt: ir.Stmt) -> ir.Stmt:
            there = substitute(stmt, {loop.var: index})
            return in_stage(there, ring.buffers, at(index), taken, counted=True)

        return Step(
            moved(parts.first),
            tuple(map(moved, parts.middle)),
            tuple(map(moved, parts.ahead)),
            moved(parts.second),
        )

    return rotated(loop, step, lambda index: wait(at(index)), free, taken)


def _by(thread: ir.Var, passed: Sequence[ir.Buffer]) -> Callable[[ir.Stmt], ir.Stmt]:
    """Rewrite loops over threads to what one does, which meets others of its group.

    It does before and after it writes what they read or have read.
    """

    def visit(stmt: ir.Stmt) -> ir.Stmt:
        if isinstance(stmt, ir.Seq):
            made = ir.seq(*map(visit, stmt.stmts))
            stmts = made.stmts if isinstance(made, ir.Seq) else (made,)
            meeting = ir.Barrier("warpgroup")
            twice = [x == meeting == y for x, y in pairwise(stmts)]
            return ir.seq(*compress(stmts, [*(not x for x in twice), True]))
        if isinstance(stmt, ir.For) and stmt.thread:
            body = substitute(stmt.body, {stmt.var: thread})
            if not writes(stmt) & set(passed):
                return body
            return ir.seq(ir.Barrier("warpgroup"), body, ir.Barrier("warpgroup"))
        if isinstance(stmt, ir.Alloc):
            return ir.seq()
        return rebuild_statements(stmt, visit)

    return visit


def _statement(node: ir.Node) -> ir.Stmt:
    assert isinstance(node, ir.Stmt)
    return node
