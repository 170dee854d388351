"""Expand mathematical functions into arithmetic, in lets before their statement.

    y[i] = exp(x[i])     ->     exp_arg: f32 = x[i]
                                exp_moved: f32 = fma(exp_arg, 1.442695, 12582912.0)
                                ...
                                exp_result: f32 = exp_half_scaled * exp_other_power
                                y[i] = exp_result

Names begin with the function's, so that a reader sees what is computed.
A `while` whose condition needs an expansion tests a flag, set before it and in it. An
expansion may select a call of another intrinsic; that one is computed under a branch:

    t_8 = select(t_7, far_sin(t), t_6)   ->     rare[0] = t_6
                                                if t_7:
                                                    t_9: u64 = cast(u64, ...)
                                                    ...
                                                    rare[0] = t_70
                                                t_8: f32 = rare[0]
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang import lazy
from tensorlang.codegen.names import Names
from tensorlang.ir import nodes as ir
from tensorlang.ir.dtypes import DType, boolean
from tensorlang.ir.intrinsics import INTRINSICS
from tensorlang.ir.visit import nodes_of, rebuild, rewriter

with lazy.modules(__name__):  # few programs need them
    from tensorlang.ir import math as expansions


def expand_math(function: ir.Function, names: Names) -> ir.Function:
    """The function with native intrinsics only."""
    if not any(map(_expands, nodes_of(function.body, ir.Call))):
        return function
    return replace(function, body=_Expansion(names).visit(function.body))


def _expands(node: object) -> bool:
    return isinstance(node, ir.Call) and INTRINSICS[node.name].expands


def _is_scalar(expr: ir.Expr) -> bool:
    return expr.dtype.lanes == 1


class _Expansion:
    def __init__(self, names: Names) -> None:
        self.names = names

    def visit(self, stmt: ir.Stmt) -> ir.Stmt:
        """The statement, preceded by the lets that it needs."""
        lets: list[ir.Stmt] = []
        known: dict[ir.Expr, ir.Expr] = {}
        match stmt:
            case ir.Seq():
                return ir.seq(*(self.visit(item) for item in stmt.stmts))
            case ir.For():
                extent = self.lift(stmt.extent, lets, known)
                new: ir.Stmt = replace(stmt, extent=extent, body=self.visit(stmt.body))
            case ir.If():
                cond = self.lift(stmt.cond, lets, known)
                orelse = None if stmt.orelse is None else self.visit(stmt.orelse)
                new = ir.If(cond, self.visit(stmt.then), orelse)
            case ir.While():
                return self.repeat(stmt)
            case _:
                new = rebuild(stmt, lambda child: self.lift(child, lets, known))
        return ir.seq(*lets, new)

    @rewriter
    def lift(
        self, node: ir.Node, lets: list[ir.Stmt], known: dict[ir.Expr, ir.Expr]
    ) -> ir.Node:
        """An expression; its expansions are appended to `lets`."""
        if not isinstance(node, ir.Expr):
            return node
        new = rebuild(node, lambda child: self.lift(child, lets, known))
        if not isinstance(new, ir.Call) or not INTRINSICS[new.name].expands:
            return new
        if new not in known:
            known[new] = self.expansion(new, lets, known)
        return known[new]

    def expansion(
        self, call: ir.Call, lets: list[ir.Stmt], known: dict[ir.Expr, ir.Expr]
    ) -> ir.Expr:
        """Expand one call, recursively."""

        def variable(hint: str, dtype: DType) -> ir.Var:
            return self.names.var(f"{call.name}_{hint}", dtype)

        parts, value = expansions.expand(call, variable)
        for part in parts:
            match part.value:
                case ir.Select(cond=cond, a=a, b=b) if _expands(a) and _is_scalar(a):
                    lets.extend(self.branch(part.var, cond, a, b))
                case _:
                    lets.append(ir.Let(part.var, self.lift(part.value, lets, known)))
        return self.lift(value, lets, known)

    def branch(
        self, var: ir.Var, cond: ir.Expr, rare: ir.Expr, usual: ir.Expr
    ) -> tuple[ir.Stmt, ...]:
        """Bind `var` to `usual`, or where `cond` holds to the expansion of `rare`."""
        one, zero = ir.as_expr(1), (ir.as_expr(0),)
        held = ir.Buffer(self.names.fresh("rare"), var.dtype, (one,), "register")
        lets: list[ir.Stmt] = []
        value = self.lift(rare, lets, {})
        return (
            ir.Alloc(held),
            ir.Store(held, zero, usual),
            ir.If(cond, ir.seq(*lets, ir.Store(held, zero, value))),
            ir.Let(var, held[0]),
        )

    def repeat(self, stmt: ir.While) -> ir.Stmt:
        """A while loop, on a flag if its condition must be expanded."""
        body = self.visit(stmt.body)
        if not any(map(_expands, nodes_of(stmt.cond, ir.Call))):
            return ir.While(stmt.cond, body)
        flag = ir.Buffer(
            self.names.fresh("going"), boolean, (ir.as_expr(1),), "register"
        )
        first = self.visit(ir.Store(flag, (ir.as_expr(0),), stmt.cond))
        again = self.visit(ir.Store(flag, (ir.as_expr(0),), stmt.cond))
        return ir.seq(ir.Alloc(flag), first, ir.While(flag[0], ir.seq(body, again)))
