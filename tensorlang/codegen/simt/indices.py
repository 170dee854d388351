"""Narrow indices to 32 bits where their ranges permit.

    for b in bound(n, "block.x"):            for b in bound(n, "block.x"):
        for t in bound(256, "thread.x"):         for t in bound(256, "thread.x"):
            at: i64 = b * 256 + t         ->         at: i64 = cast(i64, b) * 256
            s[t % 16] = x[at]                                  + cast(i64, t)
                                                     s[t % 16] = x[at]

GPUs compute in 32 bits: a 64-bit addition is two instructions, a division dozens.
Thread and block indices (there are fewer than 2^31 blocks), loops of constant extent
and what is computed from them become i32. Symbolic sizes are bounded by the arrays that
have them as dimensions: no GPU has more than 2^40 bytes of memory, and empty arrays are
not indexed. What may exceed 2^31 stays i64.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tensorlang.codegen.simt.launches import is_launch
from tensorlang.ir import nodes as ir
from tensorlang.ir.by_class import method_by_class
from tensorlang.ir.dtypes import i32, i64
from tensorlang.ir.integers.intervals import (
    BINARY,
    Interval,
    hull,
    meet,
    within,
    wrapped,
)
from tensorlang.ir.integers.size_bounds import size_ranges
from tensorlang.ir.visit import rebuild, rebuild_statements, rewriter

MOST_BYTES: Final = 1 << 40  # per array
_FITS: Final[Interval] = i32.limits
_ANY: Final[Interval] = i64.limits
_LARGEST: Final = (1 << 31) - 1
_BLOCKS: Final[Interval] = (0, i32.limits[1])
_DIVISIONS: Final = ("floordiv", "floormod")
_SHORTENING: Final = (*_DIVISIONS, "shr")
# an index in 32 bits (None if it does not fit), and its range
Narrow = tuple[ir.Expr | None, Interval]


def narrow_indices(function: ir.Function) -> ir.Function:
    """The function with indices in its launches narrowed to 32 bits where they fit."""
    sizes = size_bounds(function)

    def visit(stmt: ir.Stmt) -> ir.Stmt:
        if isinstance(stmt, ir.For) and is_launch(stmt):
            launch: ir.Stmt = _Indices(sizes).visit(stmt)
            return launch
        return rebuild_statements(stmt, visit)

    return replace(function, body=visit(function.body))


def size_bounds(function: ir.Function) -> dict[ir.Var, Interval]:
    """Ranges of sizes, from the arrays that have them as dimensions."""
    found = size_ranges(function, MOST_BYTES)
    return {size: (low, high.most) for size, (low, high) in found.items()}


class _Indices:
    """Ranges of a launch's variables, and the narrowed ones."""

    def __init__(self, sizes: Mapping[ir.Var, Interval]) -> None:
        self.intervals: dict[ir.Var, Interval] = dict(sizes)
        self.narrow: dict[ir.Var, ir.Var] = {}

    @method_by_class
    @rewriter
    def visit(self, node: ir.Node) -> ir.Node:
        """A node of the same type, computed in 32 bits where possible."""
        if isinstance(node, ir.Buffer):
            return node
        if isinstance(node, ir.Expr) and node.dtype == i64:
            made, _ = self.look(node)
            if made is not None and not isinstance(node, ir.Const):
                return ir.Cast(i64, made)
        return rebuild(node, self.visit)

    @visit.register
    def _seq(self, node: ir.Seq) -> ir.Stmt:
        return ir.seq(*(self.visit(stmt) for stmt in node.stmts))

    @visit.register
    def _compare(self, node: ir.Compare) -> ir.Expr:
        a, b = self.narrow_of(node.a), self.narrow_of(node.b)
        if a is None or b is None:
            return rebuild(node, self.visit)
        return ir.Compare(node.op, a, b)

    @visit.register
    def _cast(self, node: ir.Cast) -> ir.Expr:
        made = self.narrow_of(node.a)
        if made is None:
            return rebuild(node, self.visit)
        return made.cast(node.dtype)

    @visit.register
    def _let(self, node: ir.Let) -> ir.Stmt:
        if node.var.dtype != i64:
            return rebuild(node, self.visit)
        made, self.intervals[node.var] = self.look(node.value)
        if made is None:
            self.narrow.pop(node.var, None)
            return replace(node, value=self.visit(node.value))
        return ir.Let(self.named(node.var), made)

    @visit.register
    def _for(self, node: ir.For) -> ir.Stmt:
        if node.var.dtype != i64:
            return rebuild(node, self.visit)
        made, (_, most) = self.look(node.extent)
        last = None if most is None else max(most - 1, 0)
        self.intervals[node.var] = (0, last)
        if node.kind == "bound":
            self.intervals[node.var] = meet((0, last), _BLOCKS)
            if not isinstance(made, ir.Const):  # the host computes it, in 64 bits
                made = node.extent.cast(i32)
        if made is None:
            self.narrow.pop(node.var, None)
            extent = self.visit(node.extent)
            return replace(node, extent=extent, body=self.visit(node.body))
        var = self.named(node.var)
        return replace(node, var=var, extent=made, body=self.visit(node.body))

    def named(self, var: ir.Var) -> ir.Var:
        """The narrow variable that replaces `var` from here on."""
        return self.narrow.setdefault(var, ir.Var(var.name, i32))

    def narrow_of(self, expr: ir.Expr) -> ir.Expr | None:
        """An i64 expression in 32 bits; None if it does not fit."""
        return self.look(expr)[0] if expr.dtype == i64 else None

    @method_by_class
    def look(self, expr: ir.Expr) -> Narrow:
        """An i64 expression in 32 bits, None if it does not fit, and its range."""
        del expr
        return None, _ANY

    @look.register
    def _const(self, expr: ir.Const) -> Narrow:
        whole = int(expr.value), int(expr.value)
        return (ir.Const(expr.value, i32) if within(whole, _FITS) else None), whole

    @look.register
    def _var(self, expr: ir.Var) -> Narrow:
        return self.narrow.get(expr), self.intervals.get(expr, _ANY)

    @look.register
    def _binary(self, expr: ir.Binary) -> Narrow:
        (a, of_a), (b, of_b) = self.look(expr.a), self.look(expr.b)
        if expr.op in _DIVISIONS and of_b[0] == 0:
            of_b = meet(of_b, (1, None))  # a zero divisor is a fault
        interval = wrapped(BINARY[expr.op](of_a, of_b), _ANY)
        if expr.op == "min" and within(interval, _FITS):
            a = self.capped(expr.a) if a is None else a
            b = self.capped(expr.b) if b is None else b
        if not within(interval, _FITS):
            return None, interval
        if a is not None and b is not None:
            return ir.Binary(expr.op, a, b), interval
        if expr.op in _SHORTENING:  # the result is small, whatever the operands
            return ir.Cast(i32, rebuild(expr, self.visit)), interval
        return None, interval

    def capped(self, expr: ir.Expr) -> ir.Expr:
        """An i64, at least the minimum of i32, saturated to i32.

        The comparison with a value that fits gives the same result.
        """
        return ir.Cast(i32, ir.Binary("min", self.visit(expr), ir.Const(_LARGEST, i64)))

    @look.register
    def _select(self, expr: ir.Select) -> Narrow:
        (a, of_a), (b, of_b) = self.look(expr.a), self.look(expr.b)
        interval = hull(of_a, of_b)
        if a is None or b is None:
            return None, interval
        return ir.Select(self.visit(expr.cond), a, b), interval

    @look.register
    def _converted(self, expr: ir.Cast) -> Narrow:
        source = expr.a.dtype
        if not source.is_integer or source.bits > 32 or source.name == "u32":
            return None, _ANY
        return self.visit(expr.a).cast(i32), source.limits
