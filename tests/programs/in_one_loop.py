"""Stages of a random nest put under one loop, each perhaps under a condition."""

from __future__ import annotations

import dataclasses

from tensorlang_test_programs.draft import Draft

from tensorlang.ir.contents import reads, writes
from tensorlang.ir.nodes import (
    Alloc,
    Axis,
    Block,
    Buffer,
    Expr,
    For,
    If,
    Load,
    Node,
    Stmt,
    Var,
    as_expr,
    seq,
)
from tensorlang.ir.visit import rebuild, walk


def in_one_loop(draft: Draft) -> None:
    """The last statements in a loop: made again, or differently, in each iteration.

    A temporary lives in the loop or around it; around it, its stage may run in the
    first iteration alone, and its reader may stand before it in all others.
    """
    start = draft.pick(range(len(draft.stmts)))
    if any(_ordered(stmt) for stmt in draft.stmts[start:]):
        return  # such an axis runs upwards once
    kept, taken = draft.stmts[:start], draft.stmts[start:]
    loop, extent = Var("o"), as_expr(draft.pick([2, 2, 3]))
    inside: list[Stmt] = []
    local: set[Buffer] = set()
    for stmt in taken:
        if not isinstance(stmt, Alloc):
            inside.append(_stage(draft, stmt, loop, extent, local))
        elif draft.chance(2):
            local.add(stmt.buffer)
            inside.append(stmt)
        else:
            kept.append(stmt)
    if draft.chance(3):
        _last_first(inside, loop, kept)
    draft.stmts = [*kept, For(loop, extent, "serial", seq(*inside))]


def _ordered(stmt: Stmt) -> bool:
    axes = [x for node in walk(stmt) if isinstance(node, Block) for x in node.axes]
    return any(axis.kind == "ordered" for axis in axes)


def _stage(
    draft: Draft, stmt: Stmt, loop: Var, extent: Expr, local: set[Buffer]
) -> Stmt:
    """A stage that may follow the loop, and may run in some iterations only."""
    outputs = {param.buffer for param in draft.params}
    updated = {param.buffer for param in draft.params if param.role == "inout"}
    if writes(stmt) & updated:
        return If(loop < 1, stmt)  # an element is read before it is written, once
    if draft.chance(2):
        stmt = _following(draft, stmt, loop, extent)
    conditions: list[Expr | None] = [None]
    if not writes(stmt) & local:
        conditions += [loop < 1]
    if writes(stmt) <= outputs and not writes(stmt) & _read(draft):
        conditions += [loop >= 1, loop.equal(extent - 1)]
    chosen = draft.pick(conditions)
    return stmt if chosen is None else If(chosen, stmt)


def _read(draft: Draft) -> set[Buffer]:
    return {buffer for stmt in draft.stmts for buffer in reads(stmt)}


def _following(draft: Draft, stmt: Stmt, loop: Var, extent: Expr) -> Stmt:
    """A stage whose block reads a parameter elsewhere in each iteration."""
    given = {param.buffer for param in draft.params if param.role == "in"}
    blocks = [node for node in walk(stmt) if isinstance(node, Block)]
    if len(blocks) != 1:
        return stmt
    (block,) = blocks
    options = [
        node
        for node in walk(block.body)
        if isinstance(node, Load) and node.buffer in given and node.buffer.ndim
    ]
    if not options:
        return stmt
    chosen, var = draft.pick(options), Var("vo")
    at = draft.pick(range(chosen.buffer.ndim))
    indices = [*chosen.indices]
    indices[at] = (indices[at] + var) % chosen.buffer.shape[at]
    turned = Load(chosen.buffer, tuple(indices))
    made = dataclasses.replace(
        block,
        axes=(*block.axes, Axis(var, "spatial", extent, loop)),
        body=_replaced(block.body, chosen, turned),
    )
    return _replaced(stmt, block, made)


def _replaced(stmt: Stmt, old: Node, new: Node) -> Stmt:
    def change(node: Node) -> Node:
        return new if node is old else rebuild(node, change)

    made = change(stmt)
    assert isinstance(made, Stmt)
    return made


def _last_first(inside: list[Stmt], loop: Var, kept: list[Stmt]) -> None:
    """The last stage before all others, where it finds what they made before."""
    alive = {stmt.buffer for stmt in kept if isinstance(stmt, Alloc)}
    here = {stmt.buffer for stmt in inside if isinstance(stmt, Alloc)}
    last = inside.pop()
    results = writes(last)
    tied = (reads(last) | results) & here or results & alive
    if isinstance(last, (Alloc, If)) or tied or any(reads(s) & results for s in inside):
        inside.append(last)
    else:
        inside.insert(0, If(loop >= 1, last))
