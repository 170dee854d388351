"""Bind parts of deep expressions to variables, to bound the recursion of printers.

    y[i] = (..((x[i] + 1.0) * ..) ..)    ->    part: f32 = (..((x[i] + 1.0) * ..) ..)
                                               y[i] = (..(part * ..) ..)

Applies to device code only. Operands are evaluated unconditionally, so a part may be
computed ahead; loads in an arm of a scalar `select` stay conditional:

    y[i] = select(c, .. x[j] .., ..)     ->    chosen: bool = c
                                               part: f32 = select(chosen, .. x[j], 0.0)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tensorlang.codegen.copies import ASYNC
from tensorlang.codegen.names import Names
from tensorlang.codegen.simt.launches import is_launch
from tensorlang.ir import nodes as ir
from tensorlang.ir.collectives import is_collective
from tensorlang.ir.dtypes import boolean
from tensorlang.ir.visit import children, rebuild, rebuild_statements, rewriter, walk

DEEPEST: Final = 24  # levels of an expression


def bind_deep(function: ir.Function, names: Names) -> ir.Function:
    """The function with no device expression much deeper than `DEEPEST` levels."""

    def visit(stmt: ir.Stmt) -> ir.Stmt:
        inside = is_launch(stmt)
        return _in_threads(stmt, names) if inside else rebuild_statements(stmt, visit)

    return rebuild_statements(function, visit)


def _in_threads(stmt: ir.Stmt, names: Names) -> ir.Stmt:
    """A statement, preceded by the lets of its parts."""
    parts = _Parts(names)

    @rewriter
    def visit(child: ir.Node) -> ir.Node:
        if isinstance(child, ir.Stmt):
            return _in_threads(child, names)
        return parts.whole(child) if isinstance(child, ir.Expr) else child

    match stmt:
        case ir.Seq():
            return ir.seq(*map(visit, stmt.stmts))
        case ir.For(kind="bound"):
            return replace(stmt, body=visit(stmt.body))
        case ir.While(cond=cond) if _is_deep(cond):
            return _again(stmt, names)
        case ir.Store(hints=hints, value=value) if ASYNC in hints:
            indices = tuple(map(visit, stmt.indices))
            return ir.seq(*parts.made, replace(stmt, indices=indices, value=value))
    new = rebuild(stmt, visit)
    return ir.seq(*parts.made, new) if parts.made else new


def _again(loop: ir.While, names: Names) -> ir.Stmt:
    """A loop with its condition evaluated before it, and at the end of its body."""
    flag = ir.Buffer(names.fresh("again"), boolean, (ir.as_expr(1),), "register")
    first = (ir.as_expr(0),)

    def asked() -> tuple[ir.Stmt, ...]:
        parts = _Parts(names)
        value = parts.whole(loop.cond)
        return *parts.made, ir.Store(flag, first, value)

    body = ir.seq(_in_threads(loop.body, names), *asked())
    return ir.seq(ir.Alloc(flag), *asked(), ir.While(ir.Load(flag, first), body))


class _Parts:
    """Collects the lets for a statement's expressions."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.made: list[ir.Let] = []

    def whole(self, expr: ir.Expr) -> ir.Expr:
        """An expression with parts bound to variables if it is deep."""
        return self._below(expr, None)[0] if _is_deep(expr) else expr

    def _part(self, expr: ir.Expr, chosen: ir.Expr | None) -> tuple[ir.Expr, int]:
        """A subexpression, or a variable that holds it, and its depth.

        Args:
            expr: The subexpression.
            chosen: Condition under which its loads are evaluated; None if always.
        """
        made, levels = self._below(expr, chosen)
        if levels < DEEPEST or isinstance(expr, (ir.Ramp, ir.Splat)):
            return made, levels
        if chosen is not None and _reads(made):
            made = ir.Select(chosen, made, _zero(made))
        return self._named("part", made), 1

    def _named(self, hint: str, value: ir.Expr) -> ir.Var:
        var = self.names.var(hint, value.dtype)
        self.made.append(ir.Let(var, value))
        return var

    def _below(self, expr: ir.Expr, chosen: ir.Expr | None) -> tuple[ir.Expr, int]:
        """An expression with deep operands bound to variables, and its depth."""
        if isinstance(expr, ir.Select) and _has_own_reads(expr):
            return self._select(expr, chosen)
        most = 0

        @rewriter
        def visit(child: ir.Node) -> ir.Node:
            nonlocal most
            if not isinstance(child, ir.Expr):
                return child
            # the operand of an address-taking call is no value
            place = isinstance(expr, ir.Call) and isinstance(child, ir.Load)
            part = self._below if place else self._part
            made, levels = part(child, chosen)
            most = max(most, levels)
            return made

        return rebuild(expr, visit), most + 1

    def _select(self, expr: ir.Select, chosen: ir.Expr | None) -> tuple[ir.Expr, int]:
        """A select whose arms load only under its condition."""
        cond, _ = self._part(expr.cond, chosen)
        first = self._chosen(cond, chosen)
        second = self._chosen(ir.Unary("not", first), chosen)
        (a, of_a), (b, of_b) = self._part(expr.a, first), self._part(expr.b, second)
        return ir.Select(first, a, b), max(of_a, of_b) + 1

    def _chosen(self, cond: ir.Expr, around: ir.Expr | None) -> ir.Var:
        """A condition as a variable, in conjunction with the enclosing one."""
        if around is not None:
            cond = ir.Select(around, cond, ir.Const(False, boolean))
        return self._named("chosen", cond)


def _is_deep(expr: ir.Expr) -> bool:
    """Whether an expression has more than `DEEPEST` levels."""
    row: list[ir.Node] = [expr]
    for _ in range(DEEPEST):
        row = [
            c for node in row for c in children(node) if not isinstance(c, ir.Buffer)
        ]
        if not row:
            return False
    return True


def _has_own_reads(choice: ir.Select) -> bool:
    """Whether a scalar select has a deep arm that reads memory."""
    return choice.cond.dtype.lanes == 1 and any(
        _is_deep(arm) and _reads(arm) for arm in (choice.a, choice.b)
    )


def _reads(expr: ir.Expr) -> bool:
    """Whether an expression reads memory or has collectives."""
    return any(isinstance(node, ir.Load) or is_collective(node) for node in walk(expr))


def _zero(like: ir.Expr) -> ir.Expr:
    """Zero of the same type."""
    zero = ir.Const(False if like.dtype.is_bool else 0, like.dtype.scalar)
    return zero if like.dtype.lanes == 1 else ir.Splat(zero, like.dtype.lanes)
