"""Simplify selects for C, where the branch not taken is not evaluated.

    select(b != b, b, select(b > a, b, a))    ->    select(b != b | b > a, b, a)

    select(t >= 0 & t < 112,                        select(t >= 0 & t < 112,
           x[min(max(t, 0), 111)], 0.0)       ->           x[t], 0.0)

An index needs no clamping that the condition implies. Without it, adjacent elements
share one base address with constant offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from tensorlang.ir import nodes as ir
from tensorlang.ir.simplification.conditions import conjuncts
from tensorlang.ir.visit import rebuild, rewriter, walk
from tensorlang.scheduling.steps.memory import OWN

# ranges of expressions under a condition
_Known: TypeAlias = Mapping[ir.Expr, tuple[int | None, int | None]]


def tidy_selects(function: ir.Function) -> ir.Function:
    """The function with simplified selects; valid with C's semantics only."""

    @rewriter
    def visit(node: ir.Node) -> ir.Node:
        if isinstance(node, ir.Buffer):
            return node
        new = rebuild(node, visit)
        return _tidy(new) if isinstance(new, ir.Select) else new

    @rewriter
    def visit_statements(node: ir.Node) -> ir.Node:
        return visit(node) if isinstance(node, ir.Stmt) else node

    return replace(function, body=visit_statements(function.body))


def _tidy(select: ir.Select) -> ir.Select:
    cond, a, b = select.cond, select.a, select.b
    if isinstance(b, ir.Select) and b.a == a and _is_free(b.cond):
        return _tidy(replace(select, cond=ir.Binary("or", cond, b.cond), b=b.b))
    known = _known(cond)
    return replace(select, a=_without_bounds(a, known)) if known else select


def _is_free(cond: ir.Expr) -> bool:
    """Whether a condition may be evaluated speculatively: its loads are private."""
    loads = (node for node in walk(cond) if isinstance(node, ir.Load))
    return all(load.buffer.scope in OWN for load in loads)


def _known(cond: ir.Expr) -> _Known:
    """Integer ranges that a condition implies."""
    known: dict[ir.Expr, tuple[int | None, int | None]] = {}
    for test in conjuncts(cond):
        match test:
            case ir.Compare(op=op, a=a, b=ir.Const(value=value)) if a.dtype.is_integer:
                low, high = known.get(a, (None, None))
                match op:
                    case "ge" | "gt":
                        low = int(value) + (op == "gt")
                    case "lt" | "le":
                        high = int(value) - (op == "lt")
                known[a] = low, high
    return known


def _without_bounds(value: ir.Expr, known: _Known) -> ir.Expr:
    """A value without clamps of its indices that `known` implies."""

    @rewriter
    def visit(node: ir.Node) -> ir.Node:
        if isinstance(node, ir.Buffer):
            return node
        if isinstance(node, ir.Load):
            return rebuild(node, index)
        return rebuild(node, visit)

    @rewriter
    def index(node: ir.Node) -> ir.Node:
        if isinstance(node, ir.Buffer):
            return node
        new = rebuild(node, index)
        match new:
            case ir.Binary(op="max", a=a, b=ir.Const(value=bound)):
                low, _ = _between(a, known)
                return a if low is not None and low >= int(bound) else new
            case ir.Binary(op="min", a=a, b=ir.Const(value=bound)):
                _, high = _between(a, known)
                return a if high is not None and high <= int(bound) else new
        return new

    return visit(value)


def _between(expr: ir.Expr, known: _Known) -> tuple[int | None, int | None]:
    """The range of an expression."""
    if expr in known:
        return known[expr]
    match expr:
        case ir.Binary(op="floordiv", a=a, b=ir.Const(value=by)) if int(by) > 0:
            low, high = _between(a, known)
            return (
                None if low is None else low // int(by),
                None if high is None else high // int(by),
            )
        case ir.Binary(op="min" | "max" as op, a=a, b=ir.Const(value=bound)):
            low, high = _between(a, known)
            if op == "min":
                return low if low is not None and low <= int(bound) else None, int(
                    bound
                )
            return int(bound), high if high is not None and high >= int(bound) else None
    return None, None
