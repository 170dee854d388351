"""Stages of a random nest put under one loop, each perhaps under a condition."""

from __future__ import annotations

import dataclasses
from typing import Any

from tensorlang_test_programs.draft import Draft

from tensorlang.ir.contents import reads, writes
from tensorlang.ir.nodes import (
    Alloc,
    Axis,
    Binary,
    Block,
    Buffer,
    Expr,
    For,
    If,
    Let,
    Load,
    Node,
    Reduce,
    Stmt,
    Store,
    Var,
    as_expr,
    seq,
)
from tensorlang.ir.visit import rebuild, walk


def in_one_loop(draft: Draft) -> None:
    """The last statements in a loop: made again, or differently, in each iteration.

    A temporary lives in the loop or around it. Around it, its stage may run in the
    first iteration alone, and its reader may stand before it in all others; or it has
    a slice for each iteration, which reads its own or the one before.
    """
    start = draft.pick(range(len(draft.stmts)))
    if any(_ordered(stmt) for stmt in draft.stmts[start:]):
        return  # such an axis runs upwards once
    kept, taken = draft.stmts[:start], draft.stmts[start:]
    loop, extent = Var("o"), as_expr(draft.pick([2, 2, 3]))
    inside: list[Stmt] = []
    local: set[Buffer] = set()
    if draft.chance(3):
        kept, taken, local = _sliced(draft, kept, taken, (loop, extent))
    carried = bool(local)
    for stmt in taken:
        if isinstance(stmt, Let):
            inside.append(stmt)
        elif not isinstance(stmt, Alloc):
            inside.append(_stage(draft, stmt, loop, extent, local))
        elif draft.chance(2):
            local.add(stmt.buffer)
            inside.append(stmt)
        else:
            kept.append(stmt)
    if not carried and draft.chance(3):
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


def _sliced(
    draft: Draft, kept: list[Stmt], taken: list[Stmt], loop: tuple[Var, Expr]
) -> tuple[list[Stmt], list[Stmt], set[Buffer]]:
    """A temporary with a slice for each iteration, around the loop."""
    options = [
        stmt.buffer
        for stmt in taken
        if isinstance(stmt, Alloc) and _in_blocks(taken, stmt.buffer)
    ]
    if not options:
        return kept, taken, set()
    old = draft.pick(options)
    new = dataclasses.replace(old, shape=(loop[1], *old.shape))
    rest = [s for s in taken if not (isinstance(s, Alloc) and s.buffer == old)]
    made = [_with_slices(draft, stmt, old, new, loop) for stmt in rest]
    return [*kept, Alloc(new)], made, {new}


def _in_blocks(stmts: list[Stmt], buffer: Buffer) -> bool:
    """Whether single blocks read or write it, and nobody folds it beside another."""
    for stmt in stmts:
        nodes = list(walk(stmt))
        if buffer not in reads(stmt) | writes(stmt):
            continue
        folds = [n for n in nodes if isinstance(n, Reduce) and buffer in n.buffers]
        if any(len(fold.buffers) > 1 for fold in folds) or not _has_one_block(stmt):
            return False
    return True


def _has_one_block(stmt: Stmt) -> bool:
    while isinstance(stmt, For):
        stmt = stmt.body
    inner = list(walk(stmt))
    return isinstance(stmt, Block) and sum(isinstance(n, Block) for n in inner) == 1


def _with_slices(
    draft: Draft, stmt: Stmt, old: Buffer, new: Buffer, loop: tuple[Var, Expr]
) -> Stmt:
    if old not in reads(stmt) | writes(stmt):
        return stmt
    (block,) = (node for node in walk(stmt) if isinstance(node, Block))
    var, made_here = Var("vo"), old in writes(stmt)

    def change(node: Any) -> Any:
        node = rebuild(node, change)
        if isinstance(node, Load) and node.buffer == old:
            before = Binary("max", var - 1, as_expr(0))
            at = before if not made_here and draft.chance(2) else var
            return Load(new, (at, *node.indices))
        if isinstance(node, Store) and node.buffer == old:
            return Store(new, (var, *node.indices), node.value)
        if isinstance(node, Reduce) and node.buffers == (old,):
            at = (var, *node.indices)
            return dataclasses.replace(node, buffers=(new,), indices=at)
        return node

    axis = Axis(var, "spatial", loop[1], loop[0])
    made = dataclasses.replace(
        block,
        axes=(*block.axes, axis),
        body=change(block.body),
        init=None if block.init is None else change(block.init),
    )
    return _replaced(stmt, block, made)


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
    known = any(axis.var == var for axis in block.axes)
    at = draft.pick(range(chosen.buffer.ndim))
    indices = [*chosen.indices]
    indices[at] = (indices[at] + var) % chosen.buffer.shape[at]
    turned = Load(chosen.buffer, tuple(indices))
    made = dataclasses.replace(
        block,
        axes=block.axes if known else (*block.axes, Axis(var, "spatial", extent, loop)),
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
    named = {stmt.var for stmt in inside if isinstance(stmt, Let)}
    tied = (reads(last) | results) & here or results & alive
    tied = tied or any(node in named for node in walk(last))
    if isinstance(last, (Alloc, If)) or tied or any(reads(s) & results for s in inside):
        inside.append(last)
    else:
        inside.insert(0, If(loop >= 1, last))
