"""Unroll loops, with the loop variable a constant in each copy.

for u in unrolled(2):             y[i * 2] = x[i * 2]
    y[i * 2 + u] = x[i * 2 + u]   y[i * 2 + 1] = x[i * 2 + 1]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

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
    Load,
    Node,
    Seq,
    Stmt,
    Var,
    seq,
)
from tensorlang.ir.visit import (
    nodes_of,
    rebuild,
    rebuild_statements,
    rewriter,
    transform_statements,
    variables,
    walk_statements,
)


def unroll(function: Function, names: Names, most: int | None = None) -> Function:
    """The function without unrolled loops; those of unknown extent become serial.

    A loop that would expand to more than `most` statements is left for the compiler.
    """

    def unrolled(stmt: Stmt) -> Stmt:
        match stmt:
            case For(var, Const(value=count), "unrolled", body):
                if most is not None and _is_long(body, int(count), most):
                    return stmt
                return seq(*(_copy(body, var, n, names) for n in range(int(count))))
            case For(kind="unrolled"):
                return replace(stmt, kind="serial")
            case _:
                return stmt

    return transform_statements(function, unrolled)


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

    def visit(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For) and stmt.kind == "unrolled":
            return inside(stmt)
        return rebuild_statements(stmt, visit)

    return rebuild_statements(function, visit)


def _is_long(body: Stmt, count: int, most: int) -> bool:
    statements = sum(not isinstance(stmt, Seq) for stmt in walk_statements(body))
    return count * statements > most


def _copy(body: Stmt, var: Var, number: int, names: Names) -> Stmt:
    """A copy of the body for one value, with fresh names for its variables and buffers.

    Those inside conditions are renamed too: a condition may fold away later.
    """
    values: dict[Var, Expr] = {var: Const(number, var.dtype)}
    buffers: dict[Buffer, Buffer] = {}
    if number:
        for stmt in walk_statements(body):
            if isinstance(stmt, Let):
                renamed = names.var(stmt.var.name, stmt.var.dtype)
                values[stmt.var] = renamed
            elif isinstance(stmt, Alloc):
                name = names.fresh(stmt.buffer.name)
                buffers[stmt.buffer] = replace(stmt.buffer, name=name)
    return specialise(body, values, buffers)


def specialise(
    body: Stmt, values: Mapping[Var, Expr], buffers: Mapping[Buffer, Buffer]
) -> Stmt:
    """The body with variables and buffers replaced and constants folded."""
    return _Copy(values, buffers).visit(body)


@dataclass(slots=True)
class _Copy:
    """A copy in the making; simplified statements share equal expressions."""

    values: Mapping[Var, Expr]
    buffers: Mapping[Buffer, Buffer]
    done: dict[int, Node] = field(default_factory=dict)

    @rewriter
    def visit(self, node: Node) -> Node:
        """A node with variables and buffers replaced."""
        if isinstance(node, Expr):
            return self._value(node)
        if isinstance(node, Buffer):
            return self.buffers.get(node, node)
        if isinstance(node, Seq):
            return seq(*map(self.visit, node.stmts))
        made = rebuild(node, self.visit)
        return _branch(made) if isinstance(made, If) else made

    def _value(self, expr: Expr) -> Node:
        if isinstance(expr, Var):
            return self.values.get(expr, expr)
        if isinstance(expr, Const):
            return expr
        found = self.done.get(id(expr))
        if found is None:
            found = expr
            if self._is_affected(expr):
                found = fold_node(rebuild(expr, self.visit))
            self.done[id(expr)] = found
        return found

    def _is_affected(self, expr: Expr) -> bool:
        if not self.values.keys().isdisjoint(variables(expr)):
            return True
        loads = nodes_of(expr, Load) if self.buffers else ()
        return any(load.buffer in self.buffers for load in loads)


def _branch(stmt: If) -> Stmt:
    """An `If` with a constant condition becomes one of its branches."""
    if not isinstance(stmt.cond, Const):
        return stmt
    if stmt.cond.value:
        return stmt.then
    return stmt.orelse or Seq(())
