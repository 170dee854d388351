"""Expand mathematical functions into arithmetic, in lets before their statement.

    y[i] = exp(x[i])     ->     t: f32 = x[i]
                                t_1: f32 = fma(t, 1.442695, 12582912.0)
                                ...
                                y[i] = t_9

A `while` whose condition needs an expansion tests a flag, set before it and in it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tensorlang import lazy
from tensorlang.codegen.names import Names
from tensorlang.ir.dtypes import boolean
from tensorlang.ir.intrinsics import INTRINSICS
from tensorlang.ir.nodes import (
    Alloc,
    Buffer,
    Call,
    Expr,
    For,
    Function,
    If,
    Let,
    Node,
    Seq,
    Stmt,
    Store,
    While,
    as_expr,
    seq,
)
from tensorlang.ir.visit import nodes_of, rebuild, rewriter

if TYPE_CHECKING:
    from tensorlang.ir import math as expansions
else:  # few programs need them
    expansions = lazy.module("tensorlang.ir.math")


def expand_math(function: Function, names: Names) -> Function:
    """The function with native intrinsics only."""
    if not any(map(_expands, nodes_of(function.body, Call))):
        return function
    return replace(function, body=_Expansion(names).visit(function.body))


def _expands(node: object) -> bool:
    return isinstance(node, Call) and INTRINSICS[node.name].expands


class _Expansion:
    def __init__(self, names: Names) -> None:
        self.names = names

    def visit(self, stmt: Stmt) -> Stmt:
        """The statement, preceded by the lets that it needs."""
        lets: list[Let] = []
        known: dict[Expr, Expr] = {}
        match stmt:
            case Seq():
                return seq(*(self.visit(item) for item in stmt.stmts))
            case For():
                extent = self.lift(stmt.extent, lets, known)
                new: Stmt = replace(stmt, extent=extent, body=self.visit(stmt.body))
            case If():
                cond = self.lift(stmt.cond, lets, known)
                orelse = None if stmt.orelse is None else self.visit(stmt.orelse)
                new = If(cond, self.visit(stmt.then), orelse)
            case While():
                return self.repeat(stmt)
            case _:
                new = rebuild(stmt, lambda child: self.lift(child, lets, known))
        return seq(*lets, new)

    @rewriter
    def lift(self, node: Node, lets: list[Let], known: dict[Expr, Expr]) -> Node:
        """An expression; its expansions are appended to `lets`."""
        if not isinstance(node, Expr):
            return node
        new = rebuild(node, lambda child: self.lift(child, lets, known))
        if not isinstance(new, Call) or not INTRINSICS[new.name].expands:
            return new
        if new not in known:
            known[new] = self.expansion(new, lets, known)
        return known[new]

    def expansion(self, call: Call, lets: list[Let], known: dict[Expr, Expr]) -> Expr:
        """Expand one call, recursively."""
        parts, value = expansions.expand(call, lambda dtype: self.names.var("t", dtype))
        for part in parts:
            lets.append(Let(part.var, self.lift(part.value, lets, known)))
        return self.lift(value, lets, known)

    def repeat(self, stmt: While) -> Stmt:
        """A while loop, on a flag if its condition must be expanded."""
        body = self.visit(stmt.body)
        if not any(map(_expands, nodes_of(stmt.cond, Call))):
            return While(stmt.cond, body)
        flag = Buffer(self.names.fresh("going"), boolean, (as_expr(1),), "register")
        first = self.visit(Store(flag, (as_expr(0),), stmt.cond))
        again = self.visit(Store(flag, (as_expr(0),), stmt.cond))
        return seq(Alloc(flag), first, While(flag[0], seq(body, again)))
