"""Divisions by sizes are done once for a thread, before its loops.

    for c in unrolled(4):                    at: i64 = block // n
        y[block // n * 4 + c] = ..    ->     for c in unrolled(4):
                                                 y[at * 4 + c] = ..

A division by what only the call tells is a hundred instructions with branches of its
own, which compilers spread over the loops around it. Only what is divided in any case
moves: a condition may guard a divisor that is 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeGuard

from tensorlang.codegen.names import Names
from tensorlang.ir.contents import binders, free_vars, loops
from tensorlang.ir.nodes import (
    Binary,
    Buffer,
    Const,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Node,
    Seq,
    Stmt,
    Store,
    Var,
    seq,
)
from tensorlang.ir.visit import children, rebuild, rewriter, walk


def divide_once(function: Function, names: Names) -> Function:
    """The function with what each thread divides in its loops named before them."""

    @rewriter
    def visit(node: Node) -> Node:
        if not isinstance(node, Stmt):
            return node
        if _is_thread(node):
            return replace(node, body=_named(node.body, names))
        return rebuild(node, visit)

    return replace(function, body=visit(function.body))


def _is_thread(stmt: Stmt) -> TypeGuard[For]:
    """Whether a loop's body is what one thread runs."""
    bound = isinstance(stmt, For) and stmt.kind == "bound"
    return bound and all(loop.kind != "bound" for loop in loops(stmt.body))  # type: ignore[attr-defined]


def _named(body: Stmt, names: Names) -> Stmt:
    """What one thread runs, its quotients first."""
    inner = frozenset(var for node in walk(body) for var in binders(node))
    found = dict.fromkeys(e for e in _in_loops(body) if not free_vars(e) & inner)
    if not found:
        return body
    known: dict[Node, Var] = {}

    @rewriter
    def visit(node: Node) -> Node:
        if isinstance(node, Buffer):
            return node
        if node in known:
            return known[node]
        return rebuild(node, visit)

    lets: list[Stmt] = []
    for expr in found:
        var = names.var("quotient" if expr.op == "floordiv" else "rest", expr.dtype)
        lets.append(Let(var, visit(expr)))
        known[expr] = var
    return seq(*lets, visit(body))


def _in_loops(body: Stmt) -> Iterator[Binary]:
    """The divisions that loops do in any case, innermost first."""
    stmts = body.stmts if isinstance(body, Seq) else (body,)
    for stmt in stmts:
        if isinstance(stmt, For) and _runs(stmt):
            yield from _in_any_case(stmt.body)


def _runs(loop: For) -> bool:
    """Whether a loop is known to have a turn."""
    return isinstance(loop.extent, Const) and loop.extent.value > 0


def _in_any_case(node: Node) -> Iterator[Binary]:
    if isinstance(node, If):
        yield from _in_any_case(node.cond)
        return
    if isinstance(node, (Load, Store)) and node.mask is not None:
        return
    if isinstance(node, For) and not _runs(node):
        yield from _in_any_case(node.extent)
        return
    if isinstance(node, (Seq, For, Let, Store, Expr)):
        for child in children(node):
            if not isinstance(child, Buffer):
                yield from _in_any_case(child)
    if _divides(node):
        yield node


def _divides(node: Node) -> TypeGuard[Binary]:
    """Whether a node is a division by no constant, of what is in no memory."""
    return (
        isinstance(node, Binary)
        and node.op in ("floordiv", "floormod")
        and node.dtype.lanes == 1
        and not isinstance(node.b, Const)
        and not any(isinstance(part, Load) for part in walk(node))
    )
