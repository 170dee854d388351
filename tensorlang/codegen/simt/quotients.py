"""Hoist divisions by symbolic sizes out of a thread's loops.

    for c in unrolled(4):                    at: i64 = block // n
        y[block // n * 4 + c] = ..    ->     for c in unrolled(4):
                                                 y[at * 4 + c] = ..

Such a division takes about a hundred instructions, with branches that compilers spread
over the enclosing loops. Only divisions executed unconditionally are hoisted: a
condition may guard against a divisor of 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeGuard

from tensorlang.codegen.names import Names
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import binders, free_vars, loops
from tensorlang.ir.visit import (
    children,
    holds,
    rebuild,
    rebuild_statements,
    rewriter,
)


def hoist_divisions(function: ir.Function, names: Names) -> ir.Function:
    """The function with loop-invariant quotients hoisted in each thread."""

    def visit(stmt: ir.Stmt) -> ir.Stmt:
        if _is_thread(stmt):
            return replace(stmt, body=_named(stmt.body, names))
        return rebuild_statements(stmt, visit)

    return replace(function, body=visit(function.body))


def _is_thread(stmt: ir.Stmt) -> TypeGuard[ir.For]:
    """Whether a loop is the innermost thread loop."""
    bound = isinstance(stmt, ir.For) and stmt.kind == "bound"
    return bound and all(loop.kind != "bound" for loop in loops(stmt.body))  # type: ignore[attr-defined]


def _named(body: ir.Stmt, names: Names) -> ir.Stmt:
    """A thread's body, preceded by its loop-invariant quotients."""
    inner = frozenset(binders(body))
    found = dict.fromkeys(e for e in _in_loops(body) if not free_vars(e) & inner)
    if not found:
        return body
    known: dict[ir.Node, ir.Var] = {}

    @rewriter
    def visit(node: ir.Node) -> ir.Node:
        if isinstance(node, ir.Buffer):
            return node
        if node in known:
            return known[node]
        return rebuild(node, visit)

    lets: list[ir.Stmt] = []
    for expr in found:
        var = names.var("quotient" if expr.op == "floordiv" else "rest", expr.dtype)
        lets.append(ir.Let(var, visit(expr)))
        known[expr] = var
    return ir.seq(*lets, visit(body))


def _in_loops(body: ir.Stmt) -> Iterator[ir.Binary]:
    """The divisions that loops execute unconditionally, innermost first."""
    stmts = body.stmts if isinstance(body, ir.Seq) else (body,)
    for stmt in stmts:
        if isinstance(stmt, ir.For) and _runs(stmt):
            yield from _in_any_case(stmt.body)


def _runs(loop: ir.For) -> bool:
    """Whether a loop is known to have an iteration."""
    return isinstance(loop.extent, ir.Const) and loop.extent.value > 0


def _in_any_case(node: ir.Node) -> Iterator[ir.Binary]:
    if isinstance(node, ir.If):
        yield from _in_any_case(node.cond)
        return
    if isinstance(node, (ir.Load, ir.Store)) and node.mask is not None:
        return
    if isinstance(node, ir.For) and not _runs(node):
        yield from _in_any_case(node.extent)
        return
    if isinstance(node, (ir.Seq, ir.For, ir.Let, ir.Store, ir.Expr)):
        for child in children(node):
            if not isinstance(child, ir.Buffer):
                yield from _in_any_case(child)
    if _divides(node):
        yield node


def _divides(node: ir.Node) -> TypeGuard[ir.Binary]:
    """Whether a node is a scalar division by a non-constant, without loads."""
    return (
        isinstance(node, ir.Binary)
        and node.op in ("floordiv", "floormod")
        and node.dtype.lanes == 1
        and not isinstance(node.b, ir.Const)
        and not holds(node, ir.Load)
    )
