"""Unrolled loops written out, their variable a constant in each copy.

for u in unrolled(2):             y[i * 2] = x[i * 2]
    y[i * 2 + u] = x[i * 2 + u]   y[i * 2 + 1] = x[i * 2 + 1]
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang.codegen.folding import fold_node
from tensorlang.codegen.names import Names
from tensorlang.ir.nodes import (
    Alloc,
    Buffer,
    Const,
    Expr,
    For,
    Function,
    If,
    Let,
    Node,
    Seq,
    Stmt,
    Var,
    seq,
)
from tensorlang.ir.visit import rebuild, rewriter, walk


def unroll(function: Function, names: Names, most: int | None = None) -> Function:
    """The function without unrolled loops; one of unknown extent stays a loop.

    A loop that would be more than `most` statements stays unrolled by name, for a
    compiler to do it.
    """

    @rewriter
    def visit(node: Node) -> Node:
        match node:
            case For(kind="unrolled", extent=Const(value=count)):
                body = visit(node.body)
                if most is not None and _is_long(body, int(count), most):
                    return replace(node, body=body)
                return seq(
                    *(_copy(body, node.var, n, names) for n in range(int(count)))
                )
            case For(kind="unrolled"):
                return replace(node, kind="serial", body=visit(node.body))
            case Seq():
                return seq(*(visit(stmt) for stmt in node.stmts))
            case Stmt():
                return rebuild(node, visit)
            case _:
                return node

    return replace(function, body=visit(function.body))


def _is_long(body: Stmt, count: int, most: int) -> bool:
    statements = sum(
        isinstance(node, Stmt) and not isinstance(node, Seq) for node in walk(body)
    )
    return count * statements > most


def _copy(body: Stmt, var: Var, number: int, names: Names) -> Stmt:
    """The body for one value, under new names for all that it names.

    Also for what stands inside of conditions: one that turns out to hold is gone later.
    """
    variables: dict[Var, Expr] = {var: Const(number, var.dtype)}
    buffers: dict[Buffer, Buffer] = {}
    if number:
        for stmt in walk(body):
            if isinstance(stmt, Let):
                renamed = names.var(stmt.var.name, stmt.var.dtype)
                variables[stmt.var] = renamed
            elif isinstance(stmt, Alloc):
                name = names.fresh(stmt.buffer.name)
                buffers[stmt.buffer] = replace(stmt.buffer, name=name)
    return specialise(body, variables, buffers)


def specialise(
    body: Stmt, variables: dict[Var, Expr], buffers: dict[Buffer, Buffer]
) -> Stmt:
    """The body with variables and buffers replaced, constants folded on the way."""

    @rewriter
    def visit(node: Node) -> Node:
        match node:
            case Var():
                return variables.get(node, node)
            case Const():
                return node
            case Buffer():
                return buffers.get(node, node)
            case Seq():
                return seq(*(visit(stmt) for stmt in node.stmts))
            case If():
                return _branch(rebuild(node, visit))
            case _:
                return fold_node(rebuild(node, visit))

    return visit(body)


def _branch(stmt: If) -> Stmt:
    """A condition that became known leaves one branch."""
    if not isinstance(stmt.cond, Const):
        return stmt
    if stmt.cond.value:
        return stmt.then
    return stmt.orelse or Seq(())
