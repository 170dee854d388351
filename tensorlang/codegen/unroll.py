"""Unroll loops, with the loop variable a constant in each copy.

for u in unrolled(2):             y[i * 2] = x[i * 2]
    y[i * 2 + u] = x[i * 2 + u]   y[i * 2 + 1] = x[i * 2 + 1]
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang.codegen.folding import fold_node
from tensorlang.codegen.names import Names
from tensorlang.ir.contents import free_vars
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
from tensorlang.ir.visit import parts, rebuild, rewriter, walk_statements


def unroll(function: Function, names: Names, most: int | None = None) -> Function:
    """The function without unrolled loops; those of unknown extent become serial.

    A loop that would expand to more than `most` statements is left for the compiler.
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


def without_copies(function: Function) -> Function:
    """The function without `Let` copies of variables and constants in unrolled loops.

    Unrolling would duplicate them in every iteration.
    """
    values: dict[Var, Expr] = {}

    @rewriter
    def inside(node: Node) -> Node:
        match node:
            case Var():
                return values.get(node, node)
            case Expr():
                same = values.keys().isdisjoint(free_vars(node))
                return node if same else rebuild(node, inside)
            case Let(var=var, value=Var() | Const()):
                values[var] = inside(node.value)
                return Seq(())
            case Seq():
                return seq(*map(inside, node.stmts))
            case Buffer():
                return node
            case _:
                return rebuild(node, inside)

    @rewriter
    def visit(node: Node) -> Node:
        if isinstance(node, For) and node.kind == "unrolled":
            return inside(node)
        return rebuild(node, visit) if isinstance(node, Stmt) else node

    return replace(function, body=visit(function.body))


def _is_long(body: Stmt, count: int, most: int) -> bool:
    statements = sum(not isinstance(stmt, Seq) for stmt in walk_statements(body))
    return count * statements > most


def _copy(body: Stmt, var: Var, number: int, names: Names) -> Stmt:
    """A copy of the body for one value, with fresh names for its variables and buffers.

    Those inside conditions are renamed too: a condition may fold away later.
    """
    variables: dict[Var, Expr] = {var: Const(number, var.dtype)}
    buffers: dict[Buffer, Buffer] = {}
    if number:
        for stmt in walk_statements(body):
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
    """The body with variables and buffers replaced and constants folded."""
    # simplified statements share equal expressions, and so do their copies
    done: dict[int, Node] = {}

    @rewriter
    def visit(node: Node) -> Node:
        if isinstance(node, Var):
            return variables.get(node, node)
        if isinstance(node, Expr):
            found = done.get(id(node))
            if found is None:
                found = fold_node(rebuild(node, visit)) if affected(node) else node
                done[id(node)] = found
            return found
        if isinstance(node, Buffer):
            return buffers.get(node, node)
        if isinstance(node, Seq):
            return seq(*map(visit, node.stmts))
        made = rebuild(node, visit)
        return _branch(made) if isinstance(made, If) else made

    used = variables.keys()

    def affected(expr: Expr) -> bool:
        if not used.isdisjoint(free_vars(expr)):
            return True
        return bool(buffers) and not buffers.keys().isdisjoint(parts(expr))

    return visit(body)


def _branch(stmt: If) -> Stmt:
    """An `If` with a constant condition becomes one of its branches."""
    if not isinstance(stmt.cond, Const):
        return stmt
    if stmt.cond.value:
        return stmt.then
    return stmt.orelse or Seq(())
