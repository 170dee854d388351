"""Arithmetic analysis: ranges of variables, and bounds of expressions that follow.

Bounds of a sum are found by elimination: factors are replaced one after the other by
their upper or lower end, depending on the sign of the coefficient; symbolic ends cancel
against the rest. Each replacement is sound by itself, so several orders are tried and
the best result is taken.

Polynomials over i64 are over the integers, while the machine computes modulo 2^64:
their bounds hold for machine values only as far as the polynomial `fits`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from tensorlang.ir.dtypes import DType, i64
from tensorlang.ir.integers.indices import divisor_of
from tensorlang.ir.integers.intervals import (
    BINARY,
    UNKNOWN,
    Interval,
    meet,
    within,
    wrapped,
)
from tensorlang.ir.integers.node_intervals import node_interval, type_limits
from tensorlang.ir.integers.polynomials import (
    ONE,
    Monomial,
    Poly,
    Polys,
    factors,
    merged,
    number,
    term,
)
from tensorlang.ir.integers.size_bounds import Size
from tensorlang.ir.nodes import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Unary,
    Var,
)
from tensorlang.ir.visit import holds, parts, variables

End: TypeAlias = int | Expr | Size | None
Range: TypeAlias = tuple[End, End]
_I64: Final = i64.limits


def counted(extent: Expr) -> Range:
    """The range of a counter with this extent."""
    return 0, int(extent.value) - 1 if isinstance(extent, Const) else extent - 1


# the priority of replacing a factor of a sum, given the others
Order: TypeAlias = Callable[[Expr, list[Expr]], int]


def _variables_first(factor: Expr, _others: list[Expr]) -> int:
    return int(isinstance(factor, Var))


def _variables_last(factor: Expr, others: list[Expr]) -> int:
    """Outer quotients first, then those in them, then variables."""
    if isinstance(factor, Var):
        return -len(others)
    return _quotients_first(factor, others)


def _quotients_first(factor: Expr, others: list[Expr]) -> int:
    """Defer factors that occur in others: they may cancel with what those leave."""
    compound = (o for o in others if o is not factor and not isinstance(o, Var))
    if isinstance(factor, Var):
        return -sum(factor in variables(other) for other in compound)
    return -sum(factor in parts(other) for other in compound)


# which sum is bounded, and the order of replacements; all that may help if None
_Question: TypeAlias = tuple[frozenset[tuple[Monomial, int]], Order | None]


@dataclass(slots=True)
class _Search:
    """A search for a bound."""

    order: Order  # which factors are replaced first
    fuel: int = 64  # number of replacements left
    matters: bool = False  # whether there was a choice between variables and others


class Known:
    """Ranges of variables, and facts (polynomials that are nonnegative).

    Variables whose ends may use others come after those in `ranges`. A symbolic end is
    meant over the integers, such as `n - 1` for a variable below n; if it may wrap or
    reads memory, only its interval counts.
    """

    def __init__(
        self, ranges: Mapping[Var, Range] | None = None, facts: tuple[Poly, ...] = ()
    ) -> None:
        self.ranges: Mapping[Var, Range] = {} if ranges is None else ranges
        self.facts = facts
        self.polys = Polys()
        self._numbers: dict[Expr, int] = {}  # of the variables, in order
        self.depth = 0
        self._around: Known | None = None  # the outermost scope, if not this one
        self._own: Mapping[Var, Range] = {}  # the ranges that outer scopes lack
        self._places: dict[Var, Known] = {}  # the outer scope that defines a variable
        self._intervals: dict[Expr, Interval] = {}
        self._under_way: set[Expr] = set()
        # number of recursive lookups of pending intervals, shared by all scopes
        self._guesses = [0]
        self._exact: dict[Expr, bool] = {}
        self._found_ends: dict[tuple[Expr, int], Poly] = {}
        self._ends_of: dict[Expr, tuple[Poly | None, Poly | None]] = {}
        self._uppers: dict[_Question, int | None] = {}
        self._fitting: dict[frozenset[tuple[Monomial, int]], bool] = {}

    def inside(self, ranges: Mapping[Var, Range], facts: tuple[Poly, ...]) -> Known:
        """An inner scope with more ranges and facts, sharing results on outer ones."""
        made = Known({**self.ranges, **ranges}, self.facts + facts)
        made.polys, made._guesses = self.polys, self._guesses
        made._around, made.depth = self._around or self, self.depth + 1
        made._own = ranges
        made._places = {**self._places, **dict.fromkeys(self._own, self)}
        return made

    def _outside(self, expr: Expr) -> Known | None:
        """The outermost scope with all facts about an expression; None if this one."""
        known = self._where(variables(expr))
        return None if known is self else known

    def _where(self, *named: frozenset[Var]) -> Known:
        """The outermost scope with all facts about some variables."""
        found = self._around
        if found is None:
            return self
        for each in named:
            for var in each:
                if var in self._own:
                    return self
                place = self._places.get(var, found)
                if place.depth > found.depth:
                    found = place
        return found

    def learn(self, var: Var, range_: Range) -> None:
        """Add the range of a variable not used in any query before."""
        self.ranges = {**self.ranges, var: range_}

    # ------------------------------------------------------------ sums

    def exact(self, expr: Expr) -> bool:
        """Whether a scalar i64 expression equals its polynomial over the integers."""
        found = self._exact.get(expr)
        if found is None:
            outer = self._outside(expr)
            found = outer.exact(expr) if outer else self.fits(self.polys[expr])
            self._exact[expr] = found
        return found

    def fits(self, total: Poly) -> bool:
        """Whether a polynomial never exceeds i64."""
        if len(total) == 1:
            ((monomial, coefficient),) = total.items()
            if len(monomial) == coefficient == 1:
                return True  # whatever the machine has computed
        key = frozenset(total.items())
        found = self._fitting.get(key)
        if found is None:
            guesses = self._guesses[0]
            found = within(self._coarse(total), _I64) or within(self.span(total), _I64)
            if guesses == self._guesses[0]:
                self._fitting[key] = found
        return found

    def _coarse(self, total: Poly) -> Interval:
        """The interval of a sum, from those of its factors."""
        found: Interval = (0, 0)
        for monomial, coefficient in total.items():
            found = BINARY["add"](found, self._product(monomial, coefficient))
        return found

    def _product(self, monomial: Monomial, coefficient: int) -> Interval:
        span: Interval = (coefficient, coefficient)
        for factor in monomial:
            span = BINARY["mul"](span, self.interval(factor))
        return span

    def upper(self, total: Poly, order: Order | None = None) -> int | None:
        """The least upper bound found for a polynomial, None if there is none.

        Factors are replaced in one order, or in several.
        """
        rest = Poly({m: c for m, c in total.items() if m})
        if not rest:
            return total.constant
        if len(rest) == 1:  # most often of a variable, with a number as its end
            (((factor, *others), times),) = rest.items()
            if not others and factor in self.ranges:
                end = self.ranges[factor][times > 0]  # type: ignore[index]
                if isinstance(end, int):
                    return times * end + total.constant
        key = frozenset(rest.items()), order
        if key in self._uppers:
            bound = self._uppers[key]
        else:
            named = [variables(factor) for term in rest for factor in term]
            guesses = self._guesses[0]
            where = self._where(*named)
            bound = where._upper(rest, key)  # noqa: SLF001 - same class
            if guesses == self._guesses[0]:  # else it depends on a pending result
                self._uppers[key] = bound
        return None if bound is None else bound + total.constant

    def _upper(self, rest: Poly, key: _Question) -> int | None:
        if key in self._uppers:
            return self._uppers[key]
        guesses = self._guesses[0]
        search = _Search(key[1] or _variables_first)
        found = [self._eliminate(rest, search)]
        if search.matters and key[1] is None:
            found.append(self._eliminate(rest, _Search(_variables_last)))
        bound = min((each for each in found if each is not None), default=None)
        if guesses == self._guesses[0]:
            self._uppers[key] = bound
        return bound

    def lower(self, total: Poly) -> int | None:
        """The greatest lower bound found for a polynomial."""
        bound = self.upper(-total)
        return None if bound is None else -bound

    def span(self, total: Poly) -> Interval:
        """The interval found for a polynomial."""
        return self.lower(total), self.upper(total)

    def at_least_zero(self, total: Poly) -> bool:
        """Whether a polynomial is provably nonnegative."""
        low = self.lower(total)
        if low is not None and low >= 0:
            return True
        if any(self._follows(total, fact) for fact in self.facts):
            return True
        above = self.upper(-total, _quotients_first)
        return above is not None and above <= 0

    def _follows(self, total: Poly, fact: Poly) -> bool:
        if not any(monomial in total for monomial in fact if monomial):
            return False
        low = self.lower(total - fact)
        return low is not None and low >= 0

    def _eliminate(self, total: Poly, search: _Search) -> int | None:
        value = total.value
        if value is not None or search.fuel <= 0:
            return value
        search.fuel -= 1
        factor = self._next(total, search)
        every, choices = self._choices(total, factor)
        bounds = []
        for choice in choices:
            bound = self._eliminate(choice, search)
            if bound is not None:
                bounds.append(bound)
            elif every:
                return None
        if not bounds:
            return self._largest(total)
        return max(bounds) if every else min(bounds)

    def _largest(self, total: Poly) -> int | None:
        """The maximum of a sum of products of sizes; None for other sums."""
        found = 0
        for monomial, coefficient in total.items():
            most = self._most(monomial)
            if most is None:
                return None
            found += coefficient * (most if coefficient > 0 or not monomial else 0)
        return found

    def _most(self, monomial: Monomial) -> int | None:
        """The maximum of a product of sizes, limited by the arrays that have them."""
        if not monomial:
            return 1
        size = self.ranges.get(monomial[0], UNKNOWN)[1]  # type: ignore[call-overload]
        if not isinstance(size, Size):
            return None
        found = []
        for sizes, most in size.shapes:
            rest = monomial
            for each in sizes:
                rest = _without_one(rest, each)
            others = self._most(rest)
            found += [] if others is None else [most * others]
        return min(found, default=None)

    def _next(self, total: Poly, search: _Search) -> Expr:
        """The factor to replace next: inner variables before outer ones."""
        found = factors(total)
        if len(found) == 1:
            return found[0]
        plain = [f for f in found if isinstance(f, Var)]
        bounded = [f for f in plain if f in self.ranges]
        left = (
            found
            if len(bounded) == len(plain)
            else [f for f in found if f in bounded or not isinstance(f, Var)]
        )
        search.matters |= 0 < len(bounded) < len(left)
        order = search.order

        if len(left) < 2:
            return (left or found)[0]
        places = self._numbers
        if len(places) != len(self.ranges):
            places = {var: place for place, var in enumerate(self.ranges)}
            self._numbers = places

        def urgency(factor: Expr) -> tuple[int, int]:
            place = places.get(factor, -1) if isinstance(factor, Var) else 0
            return order(factor, found), place

        return max(left, key=urgency)

    def _choices(self, total: Poly, factor: Expr) -> tuple[bool, list[Poly]]:
        """Polynomials without `factor`: (whether all are needed, or any is a bound)."""
        for monomial in total:
            if len(monomial) > 1 and monomial.count(factor) > 1:
                return False, self._numeric(total, factor)
        arms = [] if isinstance(factor, Var) else self._arms(factor)
        if arms and isinstance(factor, Binary):
            return self._either(total, factor, arms)
        if arms:
            return True, [_replaced(total, factor, arm) for arm in arms]
        choices = []
        ends = self._ends(factor)
        relaxed = self._towards(total, factor, *ends)
        if relaxed is not None:
            choices.append(relaxed)
        if isinstance(factor, Binary) and factor.op in ("floordiv", "floormod"):
            choices += self._relaxed_division(total, factor)
            choices += self._by_other_quotients(total, factor)
        return False, choices

    def _arms(self, factor: Expr) -> list[Poly]:
        """The alternatives of a minimum, maximum or select, if they do not wrap."""
        chosen = isinstance(factor, Binary) and factor.op in ("min", "max")
        if not chosen and not isinstance(factor, Select):
            return []
        assert isinstance(factor, Binary | Select)
        if not self.exact(factor.a) or not self.exact(factor.b):
            return []
        return [self.polys[factor.a], self.polys[factor.b]]

    def _either(
        self, total: Poly, factor: Binary, arms: list[Poly]
    ) -> tuple[bool, list[Poly]]:
        """Bound min(a, b) from above by either arm, from below by the worse one."""
        signs = {self._sign(m, c, factor) for m, c in total.items() if factor in m}
        if len(signs) != 1 or 0 in signs:
            return False, self._numeric(total, factor)
        any_will_do = (signs == {1}) == (factor.op == "min")
        return not any_will_do, [_replaced(total, factor, arm) for arm in arms]

    def _sign(self, monomial: Monomial, coefficient: int, factor: Expr) -> int:
        """The sign of the cofactor of `factor`; 0 if unknown."""
        for other in monomial:
            if other is not factor and other != factor:
                low = self.interval(other)[0]
                if low is None or low < 0:
                    return 0
        return 1 if coefficient > 0 else -1

    def _ends(self, factor: Expr) -> tuple[Poly | None, Poly | None]:
        known = self._ends_of.get(factor)
        if known is not None:
            return known
        var = factor.a if isinstance(factor, Cast) else factor
        if isinstance(var, Var) and var in self.ranges and _keeps_values(var.dtype):
            low, high = self.ranges[var]
            known = self._ends_of[factor] = self._end(low, 0), self._end(high, 1)
            return known
        ends = self.interval(factor)  # limits of the type bound no sum
        low, high = (None if end in _I64 else end for end in ends)
        return self._end(low, 0), self._end(high, 1)

    def _end(self, end: End, side: int) -> Poly | None:
        """The lower (0) or upper (1) end of a range, over the integers."""
        if end is None or isinstance(end, Size):
            return None
        if isinstance(end, int):
            return number(end)
        found = self._found_ends.get((end, side))
        if found is None and (outer := self._outside(end)):
            return outer._end(end, side)  # noqa: SLF001 - same class
        if found is None:
            # memory and calls may differ between two places: they are no variables
            symbolic = end.dtype == i64 and not (holds(end, Load) or holds(end, Call))
            found = self.polys[end] if symbolic else Poly()
            fits = self.fits(found) or self.fits(found.shifted(1))
            if not symbolic or not fits:
                found = number(self.interval(end)[side] or 0)
            self._found_ends[end, side] = found
        return found

    def _towards(
        self, total: Poly, factor: Expr, low: Poly | None, high: Poly | None
    ) -> Poly | None:
        """`total` with `factor` replaced by the end that maximizes it."""
        result = Poly()
        for monomial, coefficient in total.items():
            if factor not in monomial:
                result.accumulate(monomial, coefficient)
                continue
            sign = self._sign(monomial, coefficient, factor)
            end = {1: high, -1: low, 0: None}[sign]
            if end is None:
                return None
            _multiplied(result, _without(monomial, factor), coefficient, end)
        return result

    def _relaxed_division(self, total: Poly, factor: Binary) -> list[Poly]:
        """`d * (x // d) <= x`, and `>= x - d + 1`, for a divisor that is positive."""
        if factor.op == "floormod":
            return self._remainder_below(total, factor)
        held = [monomial for monomial in total if factor in monomial]
        if len(held) > 1 or not self._never_negative(factor.b):
            return []
        (monomial,) = held
        sign = self._sign(monomial, total[monomial], factor)
        others = _without(monomial, factor)
        share, whole = total[monomial], factor.b in others
        if isinstance(factor.b, Const) and factor.b.value:
            by = int(factor.b.value)
            whole = share % by == 0
            share = -(-share // by)
        elif whole:
            others = _without_one(others, factor.b)
        low = self.interval(factor.a)[0]
        rounds = sign > 0 and low is not None and low >= 0
        if not sign or not (whole or rounds) or not self.exact(factor.a):
            return []
        inner = self.polys[factor.a]
        if sign < 0:
            inner = (inner - self.polys[factor.b]).shifted(1)
        rest = Poly({m: c for m, c in total.items() if m != monomial})
        return [rest + Poly({others: share}).product(inner)]

    def _by_other_quotients(self, total: Poly, factor: Binary) -> list[Poly]:
        """`d * (x // (c*d)) <= x // c <= d * (x // (c*d)) + d - 1`, if both occur."""
        coefficient, own = total.get((factor,)), _divisor(factor)
        if coefficient is None or own is None:
            return []
        rest = total.plus(term(factor), -coefficient)
        found = []
        for other in factors(rest):
            known = _divisor(other)
            if not isinstance(other, Binary) or other.a != factor.a or known is None:
                continue
            ratio, odd = divmod(max(known, own), min(known, own))
            if odd or ratio == 1:
                continue
            if known > own:  # x // own, in terms of the coarser quotient
                by = term(other, ratio).shifted(ratio - 1 if coefficient > 0 else 0)
                found.append(rest.plus(by, coefficient))
            elif coefficient % ratio == 0:  # in terms of the finer one
                by = term(other).shifted(0 if coefficient > 0 else 1 - ratio)
                found.append(rest.plus(by, coefficient // ratio))
        return found

    def _remainder_below(self, total: Poly, factor: Binary) -> list[Poly]:
        """`0 <= x % n <= n - 1` for an expression n that is positive."""
        if isinstance(factor.b, Const) or not self._never_negative(factor.b):
            return []
        high = self.polys[factor.b].shifted(-1)
        relaxed = self._towards(total, factor, number(0), high)
        return [] if relaxed is None else [relaxed]

    def _never_negative(self, divisor: Expr) -> bool:
        """Whether a divisor is positive where there is a result: 0 faults."""
        low = self.interval(divisor)[0]
        return low is not None and low >= 0

    def _numeric(self, total: Poly, factor: Expr) -> list[Poly]:
        """Every monomial with `factor` replaced by its maximum, if any."""
        result = Poly()
        for monomial, coefficient in total.items():
            if factor not in monomial:
                result.accumulate(monomial, coefficient)
                continue
            largest = self._product(monomial, coefficient)[1]
            if largest is None:
                return []
            result.accumulate(ONE, largest)
        return [result]

    # ------------------------------------------------------- intervals

    def interval(self, expr: Expr) -> Interval:
        """The interval of an integer or bool expression, over all its lanes."""
        found = self._intervals.get(expr)
        if found is not None:
            if self._under_way and expr in self._under_way:
                self._guesses[0] += 1
            return found
        outer = self._outside(expr)
        self._intervals[expr] = type_limits(expr.dtype)  # while pending
        self._under_way.add(expr)
        found = outer.interval(expr) if outer else self._found(expr)
        self._under_way.discard(expr)
        self._intervals[expr] = found
        return found

    def _found(self, expr: Expr) -> Interval:
        limits = type_limits(expr.dtype)
        if limits == UNKNOWN:
            return UNKNOWN
        if expr.dtype == i64 and isinstance(expr, (Binary, Unary, Var)):
            total = self.polys[expr]
            if isinstance(expr, Var):
                low, high = self.ranges.get(expr, UNKNOWN)
                low = low if isinstance(low, int) else self.lower(total)
                high = high if isinstance(high, int) else self.upper(total)
                return meet(limits, (low, high))
            if total != term(expr):
                return wrapped(self.span(total), limits)
        if isinstance(expr, Var):  # of another integer type: its ends are constants
            low, high = self.ranges.get(expr, UNKNOWN)
            return meet(limits, (self._number(low, 0), self._number(high, 1)))
        return wrapped(node_interval(expr, self.interval), limits)

    def _number(self, end: End, side: int) -> int | None:
        if isinstance(end, Expr):
            return self.interval(end)[side]
        return end.most if isinstance(end, Size) else end


def _keeps_values(dtype: DType) -> bool:
    """Whether integers of a type have the same value in i64."""
    return dtype == i64 or (dtype.is_integer and dtype.bits < i64.bits)


def _replaced(total: Poly, factor: Expr, by: Poly) -> Poly:
    result = Poly()
    for monomial, coefficient in total.items():
        if factor in monomial:
            _multiplied(result, _without(monomial, factor), coefficient, by)
        else:
            result.accumulate(monomial, coefficient)
    return result


def _without(monomial: Monomial, factor: Expr) -> Monomial:
    return tuple([other for other in monomial if other != factor])


def _without_one(monomial: Monomial, factor: Expr) -> Monomial:
    """The monomial divided by a factor, if it has that."""
    if factor not in monomial:
        return monomial
    at = monomial.index(factor)
    return monomial[:at] + monomial[at + 1 :]


def _multiplied(total: Poly, rest: Monomial, coefficient: int, by: Poly) -> None:
    """Add a term times a polynomial in place."""
    for monomial, times in by.items():
        total.accumulate(merged(rest, monomial), coefficient * times)


def _divisor(factor: Expr) -> int | None:
    """The positive constant divisor of a floor division."""
    floor = isinstance(factor, Binary) and factor.op == "floordiv"
    return divisor_of(factor) if floor else None
