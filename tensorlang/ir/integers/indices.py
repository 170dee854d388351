"""Indices: polynomials in which `//` and `%` by constants are taken apart.

Fusing and splitting leave `//` and `%` in indices. Multiples of the divisor divide out
(`linear`); where the extents of loops are known, terms too small to matter vanish as
well, until only slices `(var // start) % size` of single variables are left (`spread`).
Both are over the integers: an index does not wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import gcd
from typing import Final, TypeAlias

from tensorlang.frozen import frozen
from tensorlang.ir.integers.intervals import Interval, within
from tensorlang.ir.integers.polynomials import Poly, Polys, term
from tensorlang.ir.nodes import Binary, Const, Expr, Var
from tensorlang.ir.visit import variables

Extents: TypeAlias = Mapping[Var, int | None]  # the loops that vary; None: unknown
FAR: Final = 1 << 63
_KEPT: Final = 1 << 14  # cached forms: schedules repeat their queries


def divisor_of(expr: Expr) -> int | None:
    """The constant divisor of a `//` or `%`, if it is positive."""
    if isinstance(expr, Binary) and isinstance(expr.b, Const):
        by = int(expr.b.value)
        return by if by > 0 and expr.op in ("floordiv", "floormod") else None
    return None


def multiples(total: Poly, divisor: int) -> tuple[Poly, Poly]:
    """`total = divisor * whole + rest`, term by term; the rest's constant is small."""
    whole, rest = Poly(), Poly()
    for monomial, coefficient in total.items():
        share, left = divmod(coefficient, divisor)
        if monomial and left:
            rest[monomial] = coefficient
            continue
        if share:
            whole[monomial] = share
        if left:
            rest[monomial] = left
    return whole, rest


def common_step(
    rest: Poly, divisor: int, span: Callable[[Poly], Interval]
) -> tuple[int, Poly, Poly]:
    """A step of the divisor, and a sum as `step * coarse + fine` with fine in it.

    `fine` is within 0 .. step-1, so that it does not matter to a quotient. Without such
    a step above 1: `(1, rest, 0)`.
    """
    for step in sorted({gcd(divisor, c) for m, c in rest.items() if m}, reverse=True):
        coarse, fine = multiples(rest, step)
        if step > 1 and within(span(fine), (0, step - 1)):
            return step, coarse, fine
    return 1, rest, Poly()


def divided(total: Poly, divisor: int) -> Poly:
    """`total // divisor`: multiples of the divisor divide exactly."""
    whole, rest = multiples(total, divisor)
    return whole if rest.is_constant else whole + term(rest.expr() // divisor)


def remainder(total: Poly, divisor: int) -> Poly:
    """`total % divisor`: multiples of the divisor vanish."""
    _, rest = multiples(total, divisor)
    return rest if rest.is_constant else term(rest.expr() % divisor)


class _Linear(Polys):
    """Polynomials in which multiples of divisors have been divided out."""

    def divided(self, expr: Binary) -> Poly | None:
        """The polynomial of a `//` or `%` by a positive constant."""
        by = divisor_of(expr)
        if by is None:
            return None
        return (divided if expr.op == "floordiv" else remainder)(self[expr.a], by)


_LINEAR: Final = _Linear()


def linear(expr: Expr) -> Poly:
    """The polynomial of an index, with multiples of divisors divided out."""
    if len(_LINEAR) >= _KEPT:
        _LINEAR.clear()
    return _LINEAR[expr]


@frozen
class Slice:
    """`(var // start) % size`, or `var // start` without a size."""

    var: Var
    start: int = 1
    size: int | None = None

    def form(self) -> Poly:
        """The slice as a polynomial of one factor."""
        shifted = self.var if self.start == 1 else self.var // self.start
        return term(shifted if self.size is None else shifted % self.size)


@lru_cache(maxsize=_KEPT)
def slice_of(atom: Expr) -> Slice | None:
    """A factor as a slice of a variable by constants, if it is one."""
    match atom:
        case Var():
            return Slice(atom)
        case Binary(op="floordiv", a=a, b=Const(value=start)):
            inner = slice_of(a)
            if inner is not None and inner.size is None:
                return Slice(inner.var, inner.start * int(start))
        case Binary(op="floormod", a=a, b=Const(value=size)):
            inner = slice_of(a)
            if inner is not None and inner.size is None:
                return Slice(inner.var, inner.start, int(size))
    return None


def spread(expr: Expr, extents: Extents) -> Poly:
    """The polynomial of an index, with `//` and `%` resolved as extents allow."""
    used = variables(expr)
    return _spread(frozenset([(v, extents[v]) for v in used if v in extents]))[expr]


class _Spread(Polys):
    """The polynomials of indices of loops, with `//` and `%` resolved."""

    __slots__ = ("extents",)

    def __init__(self, extents: Extents) -> None:
        super().__init__()
        self.extents = extents

    def divided(self, expr: Binary) -> Poly | None:
        """The polynomial of a `//` or `%` by a positive constant."""
        by = divisor_of(expr)
        if by is None:
            return None
        whole, rest = multiples(self[expr.a], by)
        step, coarse, fine = common_step(rest, by, self._span)
        quotient, remains = self._sliced(coarse, by // step)
        if expr.op == "floordiv":
            return whole + quotient
        return remains.scaled(step) + fine

    def _span(self, total: Poly) -> Interval:
        return bounds(total, self.extents)

    def _sliced(self, total: Poly, divisor: int) -> tuple[Poly, Poly]:
        """Quotient and remainder of a sum without multiples of the divisor."""
        if within(self._span(total), (0, divisor - 1)):
            return Poly(), total
        part = None
        if len(total) == 1 and total.terms and total.terms[0][1] == 1:
            part = slice_of(total.terms[0][0])
        match part:
            case Slice(var, start, None):
                upper, lower = Slice(var, start * divisor), Slice(var, start, divisor)
                return upper.form(), lower.form()
            case Slice(var, start, int() as size) if size % divisor == 0:
                upper = Slice(var, start * divisor, size // divisor)
                return upper.form(), Slice(var, start, divisor).form()
        expr = total.expr()
        return term(expr // divisor), term(expr % divisor)


@lru_cache(maxsize=_KEPT)
def _spread(own: frozenset[tuple[Var, int | None]]) -> _Spread:
    return _Spread(dict(own))


def bounds(total: Poly, extents: Extents) -> Interval:
    """The minimum and maximum of a sum of slices of loop variables, if known."""
    low = high = total.constant
    for atom, c in total.terms:
        top = _top(atom, extents)
        if top is None:
            return None, None
        low, high = low + min(0, c * top), high + max(0, c * top)
    return low, high


def _top(atom: Expr, extents: Extents) -> int | None:
    """The maximum of a slice of a loop variable (the minimum is 0)."""
    part = slice_of(atom)
    if part is None or part.var not in extents:
        return None
    extent = extents[part.var]
    tops = [] if extent is None else [max(extent - 1, 0) // part.start]
    if part.size is not None:
        tops.append(part.size - 1)
    return min(tops, default=None)
