"""The rules of simplification, one method a kind of node, applied bottom-up."""

from __future__ import annotations

from functools import singledispatchmethod

from tensorlang.ir import conditions, division, lanes
from tensorlang.ir.affine import expression, poly
from tensorlang.ir.bounds import decide
from tensorlang.ir.contents import free_vars
from tensorlang.ir.dtypes import i64
from tensorlang.ir.folding import constant_of, fold, identity
from tensorlang.ir.intervals import within
from tensorlang.ir.known import Known
from tensorlang.ir.nodes import (
    Binary,
    Bitcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Extract,
    Insert,
    LaneReduce,
    Load,
    Node,
    Ramp,
    Select,
    Shuffle,
    Splat,
    Unary,
    Var,
)
from tensorlang.ir.visit import rebuild

_MOST_ROUNDS = 8  # rules applied one after the other to one node


class Simplifier:
    """Simplifies expressions from one state of knowledge, each distinct one once.

    `outer` simplifies what names none of the variables that are `new` here.
    """

    def __init__(
        self,
        known: Known,
        outer: Simplifier | None = None,
        new: frozenset[Var] | None = None,
    ) -> None:
        self.known = known
        self.depth: int = 0 if outer is None else outer.depth + 1
        # where more is known of a variable, and of what is not of variables alone
        self.basis_of: dict[Var, Simplifier] = {} if outer is None else outer.basis_of
        self.basis: Simplifier
        self.basis = self if outer is None or new is None else outer.basis
        if new:
            self.basis_of = {**self.basis_of, **dict.fromkeys(new, self)}
        self._done: dict[Expr, Expr] = {}
        self._sums: set[Expr] = set()  # in normal form

    def _outside(self, expr: Expr) -> Simplifier | None:
        """The innermost place around this one that knows as much of it."""
        place = self.basis
        for var in free_vars(expr):
            known = self.basis_of.get(var, place)
            if known.depth > place.depth:
                place = known
        return None if place is self else place

    def visit(self, expr: Expr) -> Expr:
        """The simplified expression."""
        if isinstance(expr, (Const, Var)):
            return self._fixed(expr)
        found = self._done.get(expr)
        if found is None:
            if outer := self._outside(expr):
                found = outer.visit(expr)
            else:
                found = self._settled(rebuild(expr, self._child))
            self._done[expr] = found
        return found

    def _child(self, child: Node) -> Node:
        return self.visit(child) if isinstance(child, Expr) else child

    def _fixed(self, expr: Expr) -> Expr:
        """A variable of which only one value is left is that constant."""
        if isinstance(expr, Var) and expr in self.known.ranges:
            low, high = self.known.interval(expr)
            if low is not None and low == high:
                return Const(low, expr.dtype)
        return expr

    def _settled(self, expr: Expr) -> Expr:
        """Rules applied to a node with simple children until none holds."""
        for _ in range(_MOST_ROUNDS):
            done = self._done.get(expr)
            if done is not None:
                return done
            better = self._better(expr)
            if better is None or better == expr:
                return expr
            expr = rebuild(better, self._child)
            if isinstance(expr, (Const, Var)):
                return self._fixed(expr)
        return expr

    def _better(self, expr: Expr) -> Expr | None:
        for attempt in (fold, lanes.all_splat, self.rule):
            found = attempt(expr)
            if found is not None:
                return found
        return None

    @singledispatchmethod
    def rule(self, expr: Expr) -> Expr | None:
        """A simpler form of a node whose children are simple, or None."""
        del expr
        return None

    @rule.register
    def _(self, expr: Unary) -> Expr | None:
        if expr.op == "not" and expr.dtype.is_bool:
            return conditions.negation(expr.a)
        if isinstance(expr.a, Unary) and expr.op == expr.a.op:
            return expr.a if expr.op == "abs" else expr.a.a
        if expr.op == "abs" and expr.dtype.is_integer:
            low = self.known.interval(expr.a)[0]
            return expr.a if low is not None and low >= 0 else None
        return self._sum(expr) if expr.op == "neg" else None

    @rule.register
    def _(self, expr: Binary) -> Expr | None:
        found = identity(expr)
        if found is not None:
            return found
        if expr.dtype.is_bool:
            return conditions.junction(expr, self.known) if expr.op != "xor" else None
        if expr.dtype.lanes > 1:
            return lanes.ramp_arithmetic(expr, self.known)
        if expr.op in ("min", "max") and expr.dtype.is_integer:
            return self._extremum(expr)
        if expr.op == "and" and expr.dtype.is_integer:
            return self._masked(expr)
        if expr.dtype != i64:
            return None
        if expr.op == "floordiv":
            return division.quotient(expr.a, expr.b, self.known)
        if expr.op == "floormod":
            return division.remainder(expr.a, expr.b, self.known)
        return self._sum(expr) if expr.op in ("add", "sub", "mul") else None

    def _sum(self, expr: Expr) -> Expr | None:
        if expr.dtype != i64 or expr in self._sums:
            return None
        total = poly(expr, self.known.polys)
        found = expression(division.rejoined(total, self.known))
        self._sums.add(found)
        return found

    def _extremum(self, expr: Binary) -> Expr | None:
        """The side that is never beyond the other one."""
        for first, second in ((expr.a, expr.b), (expr.b, expr.a)):
            op = "le" if expr.op == "min" else "ge"
            if decide(Compare(op, first, second), self.known):
                return first
        return None

    def _masked(self, expr: Binary) -> Expr | None:
        """`x & (2^k - 1)` is x where x has no higher bits."""
        mask = constant_of(expr.b)
        if mask is None or (int(mask.value) + 1) & int(mask.value):
            return None
        inside = within(self.known.interval(expr.a), (0, int(mask.value)))
        return expr.a if inside else None

    @rule.register
    def _(self, expr: Compare) -> Expr | None:
        return conditions.comparison(expr, self.known)

    @rule.register
    def _(self, expr: Select) -> Expr | None:
        decided = decide(expr.cond, self.known)
        if decided is not None:
            return expr.a if decided else expr.b
        if expr.a == expr.b:
            return expr.a
        if isinstance(expr.cond, Unary) and expr.cond.op == "not":
            return Select(expr.cond.a, expr.b, expr.a)
        inner = expr.a  # what is 0 beyond one edge, and beyond another
        if (
            isinstance(inner, Select)
            and isinstance(expr.b, Const)
            and inner.b == expr.b
            and inner.cond.dtype == expr.cond.dtype
        ):
            return Select(expr.cond & inner.cond, inner.a, expr.b)
        if expr.dtype.is_bool and expr.cond.dtype == expr.dtype:
            return self._select_bool(expr)
        return None

    def _select_bool(self, expr: Select) -> Expr | None:
        a, b = constant_of(expr.a), constant_of(expr.b)
        if a is not None:
            return expr.cond | expr.b if a.value else ~expr.cond & expr.b
        if b is not None:
            return ~expr.cond | expr.a if b.value else expr.cond & expr.a
        return None

    @rule.register
    def _(self, expr: Cast) -> Expr | None:
        if expr.dtype == expr.a.dtype:
            return expr.a
        inner = expr.a
        if not isinstance(inner, Cast) or not inner.dtype.is_integer:
            return None
        if not inner.a.dtype.is_integer:
            return None
        kept = within(self.known.interval(inner.a), inner.dtype.limits)
        return inner.a.cast(expr.dtype) if kept else None

    @rule.register
    def _(self, expr: Bitcast) -> Expr | None:
        if expr.dtype == expr.a.dtype:
            return expr.a
        if isinstance(expr.a, Bitcast):
            return Bitcast(expr.dtype, expr.a.a)
        return None

    @rule.register
    def _(self, expr: Load) -> Expr | None:
        if expr.mask is not None and decide(expr.mask, self.known):
            return Load(expr.buffer, expr.indices, None, expr.hints)
        return None

    @rule.register
    def _(self, expr: Ramp) -> Expr | None:
        return lanes.ramp(expr)

    @rule.register
    def _(self, expr: Extract) -> Expr | None:
        return lanes.extract(expr)

    @rule.register
    def _(self, expr: Shuffle) -> Expr | None:
        return lanes.picked(expr) if expr.dtype.lanes == 1 else None

    @rule.register
    def _(self, expr: Insert) -> Expr | None:
        return expr.value if expr.dtype.lanes == 1 else None

    @rule.register
    def _(self, expr: Splat) -> Expr | None:
        return expr.value if expr.lanes == 1 else None

    @rule.register
    def _(self, expr: LaneReduce) -> Expr | None:
        return lanes.lane_reduce(expr)

    @rule.register
    def _(self, expr: Call) -> Expr | None:
        if expr.name == "rotl" and constant_of(expr.args[1]) is not None:
            turn = constant_of(expr.args[1])
            assert turn is not None
            if int(turn.value) % expr.dtype.bits == 0:
                return expr.args[0]
        return None
