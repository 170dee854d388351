"""A state of knowledge about variables, and what follows from it for expressions.

Bounds of a sum are found by elimination: one factor after the other is replaced by its
upper or lower end, whichever the sign of its coefficient asks for, and ends that are
expressions cancel against the rest. Each replacement is sound by itself, so several
orders are tried and the best result taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from tensorlang.ir.affine import (
    Monomial,
    Poly,
    add,
    constant,
    factors,
    poly,
    product,
    scaled,
    value_of,
)
from tensorlang.ir.dtypes import i64
from tensorlang.ir.intervals import (
    BINARY,
    UNKNOWN,
    Interval,
    meet,
    within,
)
from tensorlang.ir.node_intervals import node_interval, type_limits
from tensorlang.ir.nodes import (
    Binary,
    Const,
    Expr,
    Select,
    Unary,
    Var,
)
from tensorlang.ir.visit import walk

End: TypeAlias = int | Expr | None
Range: TypeAlias = tuple[End, End]
_FUEL: Final = 64  # replacements in the search for one bound


# how urgent it is to replace a factor of a sum, beside the others
Order: TypeAlias = "Callable[[Expr, list[Expr]], int]"


def _variables_first(factor: Expr, others: list[Expr]) -> int:
    del others
    return int(isinstance(factor, Var))


def _variables_last(factor: Expr, others: list[Expr]) -> int:
    del others
    return int(not isinstance(factor, Var))


def _quotients_first(factor: Expr, others: list[Expr]) -> int:
    """What stands in others comes after them: it may cancel with what they leave."""
    return -sum(factor in set(walk(other)) for other in others if other is not factor)


_ORDERS: Final[tuple[Order, ...]] = (_variables_first, _variables_last)


class Known:
    """Ranges of variables and facts (polynomials that are at least 0).

    Variables that may have ends over others come after those in `ranges`.
    """

    def __init__(
        self, ranges: Mapping[Var, Range] | None = None, facts: tuple[Poly, ...] = ()
    ) -> None:
        self.ranges: Mapping[Var, Range] = {} if ranges is None else ranges
        self.facts = facts
        self.polys: dict[Expr, Poly] = {}
        self._order = {var: number for number, var in enumerate(self.ranges)}
        self._intervals: dict[Expr, Interval] = {}

    # ------------------------------------------------------------ sums

    def upper(self, total: Mapping[Monomial, int]) -> int | None:
        """The least upper bound found for a polynomial, None where there is none."""
        value = value_of(total)
        if value is not None:
            return value
        found = [self._eliminate(dict(total), way, [_FUEL]) for way in _ORDERS]
        return min((bound for bound in found if bound is not None), default=None)

    def lower(self, total: Mapping[Monomial, int]) -> int | None:
        """The greatest lower bound found for a polynomial."""
        bound = self.upper(scaled(total, -1))
        return None if bound is None else -bound

    def at_least_zero(self, total: Mapping[Monomial, int]) -> bool:
        """Whether a polynomial is shown not to be negative."""
        low = self.lower(total)
        if low is not None and low >= 0:
            return True
        if any(self._follows(total, fact) for fact in self.facts):
            return True
        above = self._eliminate(scaled(total, -1), _quotients_first, [_FUEL])
        return above is not None and above <= 0

    def _follows(self, total: Mapping[Monomial, int], fact: Poly) -> bool:
        if not any(monomial in total for monomial in fact if monomial):
            return False
        low = self.lower(add(total, fact, -1))
        return low is not None and low >= 0

    def _eliminate(self, total: Poly, order: Order, fuel: list[int]) -> int | None:
        value = value_of(total)
        if value is not None or fuel[0] <= 0:
            return value
        fuel[0] -= 1
        factor = self._next(total, order)
        every, choices = self._choices(total, factor)
        bounds = []
        for choice in choices:
            bound = self._eliminate(choice, order, fuel)
            if bound is not None:
                bounds.append(bound)
            elif every:
                return None
        if not bounds:
            return None
        return max(bounds) if every else min(bounds)

    def _next(self, total: Poly, order: Order) -> Expr:
        """The factor to replace next: inner variables before outer ones."""
        found = factors(total)

        def urgency(factor: Expr) -> tuple[int, int]:
            place = self._order.get(factor, -1) if isinstance(factor, Var) else 0
            return order(factor, found), place

        def bounded(factor: Expr) -> bool:
            return not isinstance(factor, Var) or factor in self.ranges

        return max(filter(bounded, found), key=urgency, default=found[0])

    def _choices(self, total: Poly, factor: Expr) -> tuple[bool, list[Poly]]:
        """Polynomials with `factor` gone: (all needed, or any of them bounds)."""
        if any(monomial.count(factor) > 1 for monomial in total):
            return False, self._numeric(total, factor)
        if isinstance(factor, Binary) and factor.op in ("min", "max"):
            return self._either(total, factor)
        if isinstance(factor, Select):
            arms = [poly(arm, self.polys) for arm in (factor.a, factor.b)]
            return True, [_replaced(total, factor, arm) for arm in arms]
        choices = []
        ends = self._ends(factor)
        relaxed = self._towards(total, factor, *ends)
        if relaxed is not None:
            choices.append(relaxed)
        if isinstance(factor, Binary):
            choices += self._relaxed_division(total, factor)
            choices += self._by_other_quotients(total, factor)
        return False, choices

    def _either(self, total: Poly, factor: Binary) -> tuple[bool, list[Poly]]:
        """min(a, b) bounds from above by either arm, from below by the worse."""
        signs = {self._sign(m, c, factor) for m, c in total.items() if factor in m}
        if len(signs) != 1 or 0 in signs:
            return False, self._numeric(total, factor)
        arms = [poly(arm, self.polys) for arm in (factor.a, factor.b)]
        any_will_do = (signs == {1}) == (factor.op == "min")
        return not any_will_do, [_replaced(total, factor, arm) for arm in arms]

    def _sign(self, monomial: Monomial, coefficient: int, factor: Expr) -> int:
        """The sign of what multiplies `factor`; 0 where it is not known."""
        for other in monomial:
            if other is not factor and other != factor:
                low = self.interval(other)[0]
                if low is None or low < 0:
                    return 0
        return 1 if coefficient > 0 else -1

    def _ends(self, factor: Expr) -> tuple[Poly | None, Poly | None]:
        if isinstance(factor, Var) and factor in self.ranges:
            low, high = (self._end(end) for end in self.ranges[factor])
            return low, high
        low_number, high_number = self.interval(factor)
        return self._end(low_number), self._end(high_number)

    def _end(self, end: End) -> Poly | None:
        if end is None:
            return None
        return constant(end) if isinstance(end, int) else poly(end, self.polys)

    def _towards(
        self, total: Poly, factor: Expr, low: Poly | None, high: Poly | None
    ) -> Poly | None:
        """`total` with `factor` replaced by the end that makes it larger."""
        result: Poly = {}
        for monomial, coefficient in total.items():
            if factor not in monomial:
                result = add(result, {monomial: coefficient})
                continue
            sign = self._sign(monomial, coefficient, factor)
            end = {1: high, -1: low, 0: None}[sign]
            if end is None:
                return None
            rest = tuple(other for other in monomial if other != factor)
            result = add(result, product({rest: coefficient}, end))
        return result

    def _relaxed_division(self, total: Poly, factor: Binary) -> list[Poly]:
        """`c * (x // c) <= x`, and `>= x - c + 1`; `x % c <= x` for x >= 0."""
        coefficient = total.get((factor,))
        alone = sum(factor in monomial for monomial in total) == 1
        if coefficient is None or not alone or not isinstance(factor.b, Const):
            return self._remainder_below(total, factor)
        divisor = int(factor.b.value)
        if factor.op != "floordiv" or divisor <= 0 or coefficient % divisor:
            return []
        inner = poly(factor.a, self.polys)
        if coefficient < 0:
            inner = add(inner, constant(divisor - 1), -1)
        rest = add(total, {(factor,): coefficient}, -1)
        return [add(rest, inner, coefficient // divisor)]

    def _by_other_quotients(self, total: Poly, factor: Binary) -> list[Poly]:
        """`d * (x // (c*d)) <= x // c <= d * (x // (c*d)) + d - 1`, if both occur."""
        coefficient, own = total.get((factor,)), _divisor(factor)
        if coefficient is None or own is None:
            return []
        rest = add(total, {(factor,): coefficient}, -1)
        found = []
        for other in factors(rest):
            known = _divisor(other)
            if not isinstance(other, Binary) or other.a != factor.a or known is None:
                continue
            ratio, odd = divmod(max(known, own), min(known, own))
            slack = constant(ratio - 1)
            if odd or ratio == 1:
                continue
            if known > own:  # x // own, in terms of the coarser quotient
                by = scaled({(other,): 1}, ratio)
                by = add(by, slack) if coefficient > 0 else by
                found.append(add(rest, by, coefficient))
            elif coefficient % ratio == 0:  # in terms of the finer one
                by = {(other,): 1}
                by = by if coefficient > 0 else add(by, slack, -1)
                found.append(add(rest, by, coefficient // ratio))
        return found

    def _remainder_below(self, total: Poly, factor: Binary) -> list[Poly]:
        """`0 <= x % n <= n - 1` for an expression n that is positive."""
        if factor.op != "floormod" or isinstance(factor.b, Const):
            return []
        divisor = poly(factor.b, self.polys)
        if (self.interval(factor.b)[0] or 0) < 1:
            return []
        high = add(divisor, constant(1), -1)
        relaxed = self._towards(total, factor, constant(0), high)
        return [] if relaxed is None else [relaxed]

    def _numeric(self, total: Poly, factor: Expr) -> list[Poly]:
        """Every monomial with `factor` replaced by its largest value, if any."""
        result: Poly = {}
        for monomial, coefficient in total.items():
            if factor not in monomial:
                result = add(result, {monomial: coefficient})
                continue
            span: Interval = (coefficient, coefficient)
            for other in monomial:
                span = BINARY["mul"](span, self.interval(other))
            if span[1] is None:
                return []
            result = add(result, constant(span[1]))
        return [result]

    # ------------------------------------------------------- intervals

    def interval(self, expr: Expr) -> Interval:
        """The interval of an integer or bool expression, over all its lanes."""
        found = self._intervals.get(expr)
        if found is None:
            self._intervals[expr] = type_limits(expr.dtype)  # while it is being found
            found = self._intervals[expr] = self._found(expr)
        return found

    def _found(self, expr: Expr) -> Interval:
        if not (expr.dtype.is_integer or expr.dtype.is_bool):
            return UNKNOWN
        limits = type_limits(expr.dtype)
        if expr.dtype == i64 and isinstance(expr, (Binary, Unary, Var)):
            total = poly(expr, self.polys)
            if total != {(expr,): 1} or isinstance(expr, Var):
                return self.lower(total), self.upper(total)
        if isinstance(expr, Var):  # of another integer type: its ends are numbers
            low, high = self.ranges.get(expr, UNKNOWN)
            return meet(limits, (_number(low), _number(high)))
        found = node_interval(expr, self.interval)
        if expr.dtype.scalar == i64 or limits == UNKNOWN:
            return found
        # another integer that may wrap takes any value of its type
        return meet(found, limits) if within(found, limits) else limits


def _number(end: End) -> int | None:
    return end if isinstance(end, int) else None


def _replaced(total: Poly, factor: Expr, by: Poly) -> Poly:
    result: Poly = {}
    for monomial, coefficient in total.items():
        if factor in monomial:
            rest = tuple(other for other in monomial if other != factor)
            result = add(result, product({rest: coefficient}, by))
        else:
            result = add(result, {monomial: coefficient})
    return result


def _divisor(factor: Expr) -> int | None:
    """The positive constant that an expression divides by, rounding down."""
    if not isinstance(factor, Binary) or factor.op != "floordiv":
        return None
    value = factor.b.value if isinstance(factor.b, Const) else 0
    return int(value) if value > 0 else None
