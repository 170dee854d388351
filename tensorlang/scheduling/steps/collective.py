"""Collective `tensorize`: run a nest as one operation of a warpgroup's threads.

Instructions such as `wgmma` are issued by all threads of a warpgroup together. Which
one computes the nest is found when the function is lowered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace as with_fields
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir import nodes as ir
from tensorlang.ir.collectives import WARPGROUP
from tensorlang.ir.contents import free_vars, names
from tensorlang.ir.dtypes import i64
from tensorlang.ir.visit import fresh, substitute
from tensorlang.scheduling.analysis import tree
from tensorlang.scheduling.steps.partials import FOLDED
from tensorlang.scheduling.steps.reduction import renest, start_of, updates_of

GROUPS: Final = {"warpgroup": WARPGROUP}  # threads of each execution scope


def collective(func: ir.Function, loop: str, scope: str) -> ir.Function:
    """Run each iteration of a loop as one operation of a warpgroup's threads.

    Raises:
        ScheduleError: the loop is not spatial, or not around serial loops of constant
            length and one unguarded block.
    """
    path = tree.find_loop(func, loop)
    groups = tree.loop_of(path)
    inner, body = _nest(groups)
    around = [x for x in tree.enclosing_loops(path) if _kinds(body, x.var)]
    for outer in (*around, groups):
        if len(_kinds(body, outer.var)) > 1:
            raise ScheduleError(
                f"loop {outer.var.name!r} drives axes of block {body.name!r} that are "
                "spatial, and others that it reduces over: split it"
            )
    if _kinds(body, groups.var) != {"spatial"}:
        raise ScheduleError(
            f"loop {groups.var.name!r} does not drive a spatial axis of block "
            f"{body.name!r}: groups of threads cannot reduce together"
        )
    taken = names(func)
    thread = ir.Var(fresh(f"{groups.var.name}_thread", taken), i64)
    size = GROUPS[scope]
    at: dict[ir.Var, ir.Expr] = {x.var: x.var for x in around}
    at[groups.var] = thread // size
    axes, values = [], {}
    for outer in (*around, groups):
        var = ir.Var(fresh(f"v_{outer.var.name}", taken), outer.var.dtype)
        kinds = _kinds(body, outer.var) or {"spatial"}
        axes.append(ir.Axis(var, min(kinds), outer.extent, at[outer.var]))
        values[outer.var] = var
    nest = substitute(
        _around(inner, with_fields(body, init=ir.seq() if _folds(body) else None)),
        values,
    )
    init = _init(inner, body, taken)
    block = ir.Block(
        fresh(f"{body.name}_{scope}", taken),
        tuple(axes),
        nest,
        init=None if init is None else substitute(init, values),
        scope=scope,
    )
    threads = ir.as_expr((tree.constant(groups.extent) or 0) * size)
    made = ir.For(thread, threads, "bound", block, "thread.x")
    return tree.replace(path, made)


def _nest(groups: ir.For) -> tuple[list[ir.For], ir.Block]:
    """The loops inside a loop, and their block."""
    loops, stmt = [groups], groups.body
    while isinstance(stmt, ir.For):
        loops.append(stmt)
        stmt = stmt.body
    plain = all(x.kind == "serial" and tree.constant(x.extent) for x in loops)
    if (
        plain
        and isinstance(stmt, ir.Block)
        and (stmt.where is None or not _folds(stmt))
    ):
        return loops[1:], stmt
    raise ScheduleError(
        f"loop {groups.var.name!r} is not around serial loops of constant length and "
        "one block without a condition: pad the block, and bind no loop of it"
    )


def _folds(block: ir.Block) -> bool:
    return any(axis.kind in FOLDED for axis in block.axes)


def _around(loops: Sequence[ir.For], body: ir.Stmt) -> ir.Stmt:
    for loop in reversed(loops):
        body = with_fields(loop, body=body)
    return body


def _kinds(block: ir.Block, var: ir.Var) -> set[str]:
    """The kinds of the axes that a loop drives."""
    return {axis.kind for axis in block.axes if var in free_vars(axis.value)}


def _init(inner: Sequence[ir.For], block: ir.Block, taken: set[str]) -> ir.Stmt | None:
    """The nest that starts the sums of a group; None for a block without any."""
    if block.init == ir.seq() or not _folds(block):
        return block.init
    axes = tuple(axis for axis in block.axes if axis.kind not in FOLDED)
    start = start_of(block, updates_of(block))
    name = fresh(f"{block.name}_init", taken)
    alone = with_fields(block, name=name, axes=axes, body=start, init=None)
    return renest((*inner, block), alone, taken)
