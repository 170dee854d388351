"""Guard statements by conditions: `where` of a block, an `If` around anything else."""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch

from tensorlang.ir import nodes as ir
from tensorlang.ir.visit import holds


@singledispatch
def guarded(stmt: ir.Stmt, condition: ir.Expr) -> ir.Stmt:
    """The statement, executed only where `condition` holds.

    Loops stay outside the condition, so that a perfect nest remains one.
    """
    return ir.If(condition, stmt)


@guarded.register
def _(stmt: ir.Block, condition: ir.Expr) -> ir.Stmt:
    own = [axis.value for axis in stmt.axes]
    parts = own if stmt.where is None else [*own, stmt.where]
    if any(holds(part, ir.Load) for part in parts):
        return ir.If(condition, stmt)
    where = condition if stmt.where is None else condition & stmt.where
    return replace(stmt, where=where)


@guarded.register
def _(stmt: ir.For, condition: ir.Expr) -> ir.Stmt:
    if holds(stmt.extent, ir.Load):
        return ir.If(condition, stmt)
    return replace(stmt, body=guarded(stmt.body, condition))


@guarded.register
def _(stmt: ir.Seq, condition: ir.Expr) -> ir.Stmt:
    if any(isinstance(part, ir.Let) for part in stmt.stmts):
        return ir.If(condition, stmt)
    return ir.seq(*(guarded(part, condition) for part in stmt.stmts))


@guarded.register
def _(stmt: ir.Role, condition: ir.Expr) -> ir.Stmt:
    return replace(stmt, body=guarded(stmt.body, condition))


@guarded.register(ir.Alloc)
@guarded.register(ir.Barrier)
@guarded.register(ir.BarrierObject)
@guarded.register(ir.Arrive)
@guarded.register(ir.Wait)
def _(stmt: ir.Stmt, condition: ir.Expr) -> ir.Stmt:  # noqa: ARG001 - these are never skipped
    return stmt
