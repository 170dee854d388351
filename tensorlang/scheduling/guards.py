"""Guard statements by conditions: `where` of a block, an `If` around anything else."""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch

from tensorlang.ir.nodes import (
    Alloc,
    Arrive,
    Barrier,
    BarrierObject,
    Block,
    Expr,
    For,
    If,
    Let,
    Load,
    Node,
    Role,
    Seq,
    Stmt,
    Wait,
    seq,
)
from tensorlang.ir.visit import walk


@singledispatch
def guarded(stmt: Stmt, condition: Expr) -> Stmt:
    """The statement, executed only where `condition` holds.

    Loops stay outside the condition, so that a perfect nest remains one.
    """
    return If(condition, stmt)


@guarded.register
def _(stmt: Block, condition: Expr) -> Stmt:
    own = [axis.value for axis in stmt.axes]
    if any(map(_loads, own if stmt.where is None else [*own, stmt.where])):
        return If(condition, stmt)
    where = condition if stmt.where is None else condition & stmt.where
    return replace(stmt, where=where)


@guarded.register
def _(stmt: For, condition: Expr) -> Stmt:
    if _loads(stmt.extent):
        return If(condition, stmt)
    return replace(stmt, body=guarded(stmt.body, condition))


@guarded.register
def _(stmt: Seq, condition: Expr) -> Stmt:
    if any(isinstance(part, Let) for part in stmt.stmts):
        return If(condition, stmt)
    return seq(*(guarded(part, condition) for part in stmt.stmts))


@guarded.register
def _(stmt: Role, condition: Expr) -> Stmt:
    return replace(stmt, body=guarded(stmt.body, condition))


@guarded.register(Alloc)
@guarded.register(Barrier)
@guarded.register(BarrierObject)
@guarded.register(Arrive)
@guarded.register(Wait)
def _(stmt: Stmt, condition: Expr) -> Stmt:  # noqa: ARG001 - these are never skipped
    return stmt


def _loads(node: Node) -> bool:
    return any(isinstance(part, Load) for part in walk(node))
