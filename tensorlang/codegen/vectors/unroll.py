"""Unroll loops, with the loop variable a constant in each copy.

for u in unrolled(2):             y[i * 2] = x[i * 2]
    y[i * 2 + u] = x[i * 2 + u]   y[i * 2 + 1] = x[i * 2 + 1]

Copies under one condition, which the loop's variable is not in, are so together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tensorlang.codegen.folding import fold_node
from tensorlang.codegen.names import Names
from tensorlang.codegen.own_names import with_own_names
from tensorlang.ir import nodes as ir
from tensorlang.ir.visit import (
    holds,
    nodes_of,
    rebuild,
    rebuild_statements,
    rewriter,
    substitute,
    transform_statements,
    variables,
    walk_statements,
)


def unroll(function: ir.Function, names: Names, most: int | None = None) -> ir.Function:
    """The function without unrolled loops; those of unknown extent become serial.

    A loop that would expand to more than `most` statements is left for the compiler.
    """

    def unrolled(stmt: ir.Stmt) -> ir.Stmt:
        match stmt:
            case ir.For(var, ir.Const(value=count), "unrolled", body):
                if most is not None and _is_long(body, int(count), most):
                    return stmt
                copies = (_copy(body, var, n, names) for n in range(int(count)))
                return ir.seq(*_joined(copies))
            case ir.For(kind="unrolled"):
                return replace(stmt, kind="serial")
            case _:
                return stmt

    return with_own_names(transform_statements(function, unrolled), names)


def without_copies(function: ir.Function) -> ir.Function:
    """The function without `Let` copies of variables and constants.

    They name nothing new, and unrolling would duplicate them in every iteration. A
    name may mean something else in another scope.
    """

    def visit(whole: ir.Stmt) -> ir.Stmt:
        if not isinstance(whole, ir.Seq):
            return rebuild_statements(whole, visit)
        made: list[ir.Stmt] = []
        known: dict[ir.Var, ir.Expr] = {}
        for stmt in whole.stmts:
            now = substitute(stmt, known) if known else stmt
            if isinstance(now, ir.Let) and isinstance(now.value, ir.Var | ir.Const):
                known[now.var] = now.value
            else:
                made.append(visit(now))
        return ir.seq(*made)

    return replace(function, body=visit(function.body))


def _is_long(body: ir.Stmt, count: int, most: int) -> bool:
    statements = sum(not isinstance(stmt, ir.Seq) for stmt in walk_statements(body))
    return count * statements > most


def _joined(copies: Iterable[ir.Stmt]) -> Iterator[ir.Stmt]:
    """The statements; consecutive ones under the same condition are under one."""
    last: ir.Stmt = ir.Seq(())
    for copy in copies:
        match last, copy:
            case ir.If(cond, first, None), ir.If(same, then, None) if (
                cond == same and not holds(cond, ir.Load)
            ):
                last = ir.If(cond, ir.seq(first, then))
            case _:
                yield last
                last = copy
    yield last


def _copy(body: ir.Stmt, var: ir.Var, number: int, names: Names) -> ir.Stmt:
    """A copy of the body for one value; the first one keeps its names."""
    value = {var: ir.Const(number, var.dtype)}
    return renamed(body, names, value) if number else specialise(body, value, {})


def renamed(
    body: ir.Stmt, names: Names, values: Mapping[ir.Var, ir.Expr] | None = None
) -> ir.Stmt:
    """A copy of the body with fresh names for its variables and buffers.

    Those inside conditions are renamed too: a condition may fold away later.
    """
    made: dict[ir.Var, ir.Expr] = dict(values or {})
    buffers: dict[ir.Buffer, ir.Buffer] = {}
    for stmt in walk_statements(body):
        if isinstance(stmt, ir.Let):
            made[stmt.var] = names.var(stmt.var.name, stmt.var.dtype)
        elif isinstance(stmt, ir.Alloc):
            name = names.fresh(stmt.buffer.name)
            buffers[stmt.buffer] = replace(stmt.buffer, name=name)
    return specialise(body, made, buffers)


def specialise(
    body: ir.Stmt,
    values: Mapping[ir.Var, ir.Expr],
    buffers: Mapping[ir.Buffer, ir.Buffer],
) -> ir.Stmt:
    """The body with variables and buffers replaced and constants folded."""
    return _Copy(values, buffers).visit(body)


@dataclass(slots=True)
class _Copy:
    """A copy in the making; simplified statements share equal expressions."""

    values: Mapping[ir.Var, ir.Expr]
    buffers: Mapping[ir.Buffer, ir.Buffer]
    done: dict[int, ir.Node] = field(default_factory=dict)

    @rewriter
    def visit(self, node: ir.Node) -> ir.Node:
        """A node with variables and buffers replaced."""
        if isinstance(node, ir.Expr):
            return self._value(node)
        if isinstance(node, ir.Buffer):
            return self.buffers.get(node, node)
        if isinstance(node, ir.Seq):
            return ir.seq(*map(self.visit, node.stmts))
        made = rebuild(node, self.visit)
        return _branch(made) if isinstance(made, ir.If) else made

    def _value(self, expr: ir.Expr) -> ir.Node:
        if isinstance(expr, ir.Var):
            return self.values.get(expr, expr)
        if isinstance(expr, ir.Const):
            return expr
        found = self.done.get(id(expr))
        if found is None:
            found = expr
            if self._is_affected(expr):
                found = fold_node(rebuild(expr, self.visit))
            self.done[id(expr)] = found
        return found

    def _is_affected(self, expr: ir.Expr) -> bool:
        if not self.values.keys().isdisjoint(variables(expr)):
            return True
        loads = nodes_of(expr, ir.Load) if self.buffers else ()
        return any(load.buffer in self.buffers for load in loads)


def _branch(stmt: ir.If) -> ir.Stmt:
    """An `If` with a constant condition becomes one of its branches."""
    if not isinstance(stmt.cond, ir.Const):
        return stmt
    if stmt.cond.value:
        return stmt.then
    return stmt.orelse or ir.Seq(())
