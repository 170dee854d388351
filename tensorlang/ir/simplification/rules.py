"""Simplification rules, one method per node class, applied bottom-up."""

from __future__ import annotations

from typing import TypeGuard

from tensorlang.ir import nodes as ir
from tensorlang.ir.by_class import by_class
from tensorlang.ir.dtypes import i64
from tensorlang.ir.integers import division
from tensorlang.ir.integers.bounds import decide, never_above
from tensorlang.ir.integers.intervals import within
from tensorlang.ir.integers.known import Known
from tensorlang.ir.integers.polynomials import MOST_TERMS, ONE, Poly, term
from tensorlang.ir.simplification import conditions, lanes
from tensorlang.ir.simplification.folding import constant_of, fold, identity
from tensorlang.ir.visit import rebuild, variables

_MOST_ROUNDS = 8  # successive rules applied to one node


class Simplifier:
    """Simplifies expressions given an analysis, memoising results.

    `outer` simplifies expressions without any of the variables that are `new` here.
    """

    def __init__(
        self,
        known: Known,
        outer: Simplifier | None = None,
        new: frozenset[ir.Var] | None = None,
    ) -> None:
        self.known = known
        self.depth: int = 0 if outer is None else outer.depth + 1
        self.new = new or frozenset()
        # outer simplifiers: for expressions without variables, and by variable
        self.basis: Simplifier | None = None
        self.basis_of: dict[ir.Var, Simplifier] = {}
        if outer is not None:
            self.basis = None if new is None else outer.basis or outer
            given = dict.fromkeys(outer.new, outer)
            self.basis_of = outer.basis_of | given if given else outer.basis_of
        self._done: dict[ir.Expr, ir.Expr] = {}
        self._totals: dict[ir.Expr, Poly] = {}

    def _outside(self, expr: ir.Expr) -> Simplifier | None:
        """The innermost enclosing simplifier with all facts about an expression."""
        place = self.basis
        if place is None:
            return None
        for var in variables(expr):
            if var in self.new:
                return None
            known = self.basis_of.get(var, place)
            if known.depth > place.depth:
                place = known
        return place

    def visit(self, expr: ir.Expr) -> ir.Expr:
        """The simplified expression."""
        if isinstance(expr, ir.Const):
            return expr
        found = self._done.get(expr)
        if found is None:
            if isinstance(expr, ir.Var):
                found = self._fixed(expr)
            elif outer := self._outside(expr):
                found = outer.visit(expr)
            elif _is_sum(expr):
                found = self._summed(expr)
            else:
                found = self._settled(rebuild(expr, self._child))
            if found is not expr and found == expr:
                found = expr  # an equal tree, with its caches filled
            self._done[expr] = found
            self._done.setdefault(found, found)
        return found

    def _summed(self, expr: ir.Binary | ir.Unary) -> ir.Expr:
        """A sum of i64 simplified as a whole: only its factors are visited."""
        found = self._total(expr).expr()
        return self._fixed(found) if isinstance(found, ir.Var) else found

    def _total(self, expr: ir.Expr) -> Poly:
        """The normal form of a sum with simplified factors."""
        if not _is_sum(expr):
            return self.known.polys[self.visit(expr)]
        found = self._totals.get(expr)
        if found is None:
            found = self._totals[expr] = self._collected(expr)
        return found

    def _collected(self, expr: ir.Binary | ir.Unary) -> Poly:
        """`_total` of a sum that was not met before."""
        plain = Poly()
        if self._gather(expr, 1, plain):
            return plain
        total = self._terms(expr)
        joined = division.rejoined(total, self.known)
        return total.ordered() if joined is total else self._total(joined.expr())

    def _gather(self, expr: ir.Expr, scale: int, total: Poly) -> bool:
        """Accumulate a sum in place; False if it needs more than adding terms up."""
        if isinstance(expr, ir.Const):
            total.accumulate(ONE, scale * int(expr.value))
            return True
        if isinstance(expr, ir.Binary) and expr.dtype is i64:
            a, b = expr.a, expr.b
            if expr.op == "add":
                return self._gather(a, scale, total) and self._gather(b, scale, total)
            if isinstance(b, ir.Const) and b.value > 0:
                if expr.op == "mul":
                    return self._gather(a, scale * int(b.value), total)
                if expr.op == "sub":
                    total.accumulate(ONE, -scale * int(b.value))
                    return self._gather(a, scale, total)
        if _is_sum(expr):
            return False
        factor = self.visit(expr)
        if isinstance(factor, ir.Const):
            total.accumulate(ONE, scale * int(factor.value))
        elif _is_sum(factor) or (
            isinstance(factor, ir.Binary) and factor.op == "floormod"
        ):
            return False
        else:
            total.accumulate((factor,), scale)
        return len(total) <= MOST_TERMS

    def _terms(self, expr: ir.Binary | ir.Unary) -> Poly:
        a = self._total(expr.a)
        if isinstance(expr, ir.Unary):
            return -a
        b = self._total(expr.b)
        if expr.op != "mul":
            return a + b if expr.op == "add" else a - b
        if a.multiplies(b):
            return a.product(b)
        return term(ir.Binary("mul", a.expr(), b.expr()))

    def _child(self, child: ir.Node) -> ir.Node:
        return self.visit(child) if isinstance(child, ir.Expr) else child

    def _fixed(self, expr: ir.Expr) -> ir.Expr:
        """Replace a variable with a single possible value by that constant."""
        if isinstance(expr, ir.Var) and expr in self.known.ranges:
            low, high = self.known.interval(expr)
            if low is not None and low == high:
                return ir.Const(low, expr.dtype)
        return expr

    def _settled(self, expr: ir.Expr) -> ir.Expr:
        """Apply rules to a node with simplified children until none applies."""
        for _ in range(_MOST_ROUNDS):
            done = self._done.get(expr)
            if done is not None:
                return done
            better = self._better(expr)
            if better is None or better == expr:
                return expr
            if _is_sum(better):
                return self.visit(better)
            expr = rebuild(better, self._child)
            if isinstance(expr, (ir.Const, ir.Var)):
                return self._fixed(expr)
        return expr

    def _better(self, expr: ir.Expr) -> ir.Expr | None:
        found = fold(expr)
        if found is None:
            found = lanes.all_splat(expr)
        if found is not None:
            return found
        return _rule(expr, self.known)


def _is_sum(expr: ir.Expr) -> TypeGuard[ir.Binary | ir.Unary]:
    """Whether an expression is a sum, difference or product of i64."""
    if isinstance(expr, ir.Binary):
        return expr.dtype is i64 and expr.op in ("add", "sub", "mul")
    return isinstance(expr, ir.Unary) and expr.op == "neg" and expr.dtype is i64


@by_class
def _rule(expr: ir.Expr, known: Known) -> ir.Expr | None:
    """A simpler form of a node with simplified children, or None."""
    del expr, known
    return None


@_rule.register
def _(expr: ir.Unary, known: Known) -> ir.Expr | None:
    if expr.op == "not" and expr.dtype.is_bool:
        return conditions.negation(expr.a)
    if isinstance(expr.a, ir.Unary) and expr.op == expr.a.op:
        return expr.a if expr.op == "abs" else expr.a.a
    if expr.op == "abs" and expr.dtype.is_integer:
        low = known.interval(expr.a)[0]
        return expr.a if low is not None and low >= 0 else None
    return None


@_rule.register
def _(expr: ir.Binary, known: Known) -> ir.Expr | None:
    found = identity(expr)
    if found is not None:
        return found
    if expr.dtype.is_bool:
        return conditions.junction(expr, known) if expr.op != "xor" else None
    if expr.dtype.lanes > 1:
        return lanes.ramp_arithmetic(expr, known)
    if expr.op in ("min", "max") and expr.dtype.is_integer:
        return _extremum(expr, known)
    if expr.op == "and" and expr.dtype.is_integer:
        return _masked(expr, known)
    if expr.dtype != i64:
        return None
    if expr.op == "floordiv":
        return division.quotient(expr.a, expr.b, known)
    if expr.op == "floormod":
        return division.remainder(expr.a, expr.b, known)
    return None


def _extremum(expr: ir.Binary, known: Known) -> ir.Expr | None:
    """The operand that is provably the minimum or maximum, or None."""
    for first, second in ((expr.a, expr.b), (expr.b, expr.a)):
        low, high = (first, second) if expr.op == "min" else (second, first)
        if never_above(low, high, known):
            return first
    return None


def _masked(expr: ir.Binary, known: Known) -> ir.Expr | None:
    """`x & (2^k - 1)` is x if x has no higher bits."""
    mask = constant_of(expr.b)
    if mask is None or (int(mask.value) + 1) & int(mask.value):
        return None
    inside = within(known.interval(expr.a), (0, int(mask.value)))
    return expr.a if inside else None


@_rule.register
def _(expr: ir.Compare, known: Known) -> ir.Expr | None:
    return conditions.comparison(expr, known)


@_rule.register
def _(expr: ir.Select, known: Known) -> ir.Expr | None:
    decided = decide(expr.cond, known)
    if decided is not None:
        return expr.a if decided else expr.b
    if expr.a == expr.b:
        return expr.a
    if isinstance(expr.cond, ir.Unary) and expr.cond.op == "not":
        return ir.Select(expr.cond.a, expr.b, expr.a)
    inner = expr.a  # zero beyond one edge, and beyond another
    if (
        isinstance(inner, ir.Select)
        and isinstance(expr.b, ir.Const)
        and inner.b == expr.b
        and inner.cond.dtype == expr.cond.dtype
    ):
        return ir.Select(expr.cond & inner.cond, inner.a, expr.b)
    if expr.dtype.is_bool and expr.cond.dtype == expr.dtype:
        return _select_bool(expr)
    return None


def _select_bool(expr: ir.Select) -> ir.Expr | None:
    a, b = constant_of(expr.a), constant_of(expr.b)
    if a is not None:
        return expr.cond | expr.b if a.value else ~expr.cond & expr.b
    if b is not None:
        return ~expr.cond | expr.a if b.value else expr.cond & expr.a
    return None


@_rule.register
def _(expr: ir.Cast, known: Known) -> ir.Expr | None:
    if expr.dtype == expr.a.dtype:
        return expr.a
    inner = expr.a
    if not isinstance(inner, ir.Cast) or not inner.dtype.is_integer:
        return None
    if not inner.a.dtype.is_integer:
        return None
    kept = within(known.interval(inner.a), inner.dtype.limits)
    return inner.a.cast(expr.dtype) if kept else None


@_rule.register
def _(expr: ir.Bitcast, _known: Known) -> ir.Expr | None:
    if expr.dtype == expr.a.dtype:
        return expr.a
    if isinstance(expr.a, ir.Bitcast):
        return ir.Bitcast(expr.dtype, expr.a.a)
    return None


@_rule.register
def _(expr: ir.Load, known: Known) -> ir.Expr | None:
    if expr.mask is not None and decide(expr.mask, known):
        return ir.Load(expr.buffer, expr.indices, None, expr.hints)
    return None


@_rule.register
def _(expr: ir.Ramp, _known: Known) -> ir.Expr | None:
    return lanes.ramp(expr)


@_rule.register
def _(expr: ir.Extract, _known: Known) -> ir.Expr | None:
    return lanes.extract(expr)


@_rule.register
def _(expr: ir.Shuffle, _known: Known) -> ir.Expr | None:
    return lanes.picked(expr) if expr.dtype.lanes == 1 else None


@_rule.register
def _(expr: ir.Insert, _known: Known) -> ir.Expr | None:
    return expr.value if expr.dtype.lanes == 1 else None


@_rule.register
def _(expr: ir.Splat, _known: Known) -> ir.Expr | None:
    return expr.value if expr.lanes == 1 else None


@_rule.register
def _(expr: ir.LaneReduce, _known: Known) -> ir.Expr | None:
    return lanes.lane_reduce(expr)


@_rule.register
def _(expr: ir.Call, _known: Known) -> ir.Expr | None:
    if expr.name == "rotl" and constant_of(expr.args[1]) is not None:
        turn = constant_of(expr.args[1])
        assert turn is not None
        if int(turn.value) % expr.dtype.bits == 0:
            return expr.args[0]
    return None
