"""Simplify floordiv and floormod in index arithmetic, given facts about operands.

`x // d` is split by the multiples of d in x: `(32*a + b) // 32` is `a + b // 32`, which
is `a` if b is within 0 .. 31; `%` likewise. d may be an expression. All of this holds
for integers: if terms may wrap, only remainders by powers of two are split.
"""

from __future__ import annotations

from math import gcd
from typing import Final

from tensorlang.ir.affine import (
    ONE,
    Monomial,
    Poly,
    add,
    constant,
    expression,
    poly,
    scaled,
    value_of,
)
from tensorlang.ir.dtypes import i64
from tensorlang.ir.known import Known
from tensorlang.ir.nodes import Binary, Const, Expr

_MOST: Final = i64.limits[1]


def quotient(x: Expr, d: Expr, known: Known) -> Expr | None:
    """A simpler form of `x // d`, or None."""
    total, divisor = poly(x, known.polys), poly(d, known.polys)
    number = value_of(divisor)
    if number is None:
        return _symbolic(total, d, known, "floordiv")
    if number <= 0 or not known.fits(total):
        return None
    whole, rest = _multiples(total, number)
    if not known.fits(rest):
        return None
    found = _quotient_of_rest(rest, number, known)
    if found is not None:
        return expression(add(whole, found))
    if not whole:
        return None
    part = Binary("floordiv", expression(rest), Const(number, d.dtype))
    return expression(add(whole, {(part,): 1}))


def remainder(x: Expr, d: Expr, known: Known) -> Expr | None:
    """A simpler form of `x % d`, or None."""
    total, divisor = poly(x, known.polys), poly(d, known.polys)
    number = value_of(divisor)
    if number is None:
        return _symbolic(total, d, known, "floormod")
    if number <= 0 or not _keeps_remainders(total, number, known):
        return None
    whole, rest = _multiples(_without_inner_remainders(total, number, known), number)
    if not _keeps_remainders(rest, number, known):
        return None
    low, high = known.lower(rest), known.upper(rest)
    if low is not None and high is not None and low // number == high // number:
        return expression(add(rest, constant(number * (low // number)), -1))
    step, coarse, fine = _common_step(rest, number, known)
    if step > 1:
        inner = expression(scaled_down(coarse, step))
        small = Binary("floormod", inner, Const(number // step, d.dtype))
        simpler = _or(remainder(inner, small.b, known), small)
        return expression(add(scaled(poly(simpler, known.polys), step), fine))
    if not whole and rest == total:
        return None
    return Binary("floormod", expression(rest), Const(number, d.dtype))


def _keeps_remainders(total: Poly, number: int, known: Known) -> bool:
    """Whether wrapping preserves the remainder of a sum."""
    return number & (number - 1) == 0 or known.fits(total)


def scaled_down(total: Poly, step: int) -> Poly:
    """A polynomial whose coefficients `step` divides, divided by it."""
    return {monomial: value // step for monomial, value in total.items()}


def _multiples(total: Poly, number: int) -> tuple[Poly, Poly]:
    """`total = number * whole + rest`, term by term; the constant of rest is small."""
    whole: Poly = {}
    rest: Poly = {}
    for monomial, coefficient in total.items():
        share, left = divmod(coefficient, number)
        if monomial and left:
            rest[monomial] = coefficient
            continue
        if share:
            whole[monomial] = share
        if left:
            rest[monomial] = left
    return whole, rest


def _quotient_of_rest(rest: Poly, number: int, known: Known) -> Poly | None:
    """`rest // number`, if it is constant, or a division by less."""
    low, high = known.lower(rest), known.upper(rest)
    if low is not None and high is not None and low // number == high // number:
        return constant(low // number)
    step, coarse, _ = _common_step(rest, number, known)
    if step > 1:
        inner = expression(scaled_down(coarse, step))
        d = Const(number // step, inner.dtype)
        simpler = _or(quotient(inner, d, known), _divided(inner, d))
        return poly(simpler, known.polys)
    return _nested(rest, number, known)


def _or(found: Expr | None, otherwise: Expr) -> Expr:
    return otherwise if found is None else found


def _divided(x: Expr, d: Const) -> Expr:
    return x if d.value == 1 else Binary("floordiv", x, d)


def _common_step(rest: Poly, number: int, known: Known) -> tuple[int, Poly, Poly]:
    """A step > 1 and `rest` as a multiple of it plus a part within 0 .. step-1.

    The step divides `number`. Without such a step: `(1, rest, {})`.
    """
    steps = {gcd(number, c) for m, c in rest.items() if m}
    for first in sorted(steps, reverse=True):
        step = first
        for coefficient in (c for m, c in rest.items() if m and c % first == 0):
            step = gcd(step, coefficient)
        if step <= 1:
            continue
        coarse = {m: c for m, c in rest.items() if m and c % step == 0}
        fine = {m: c for m, c in rest.items() if m and c % step}
        share, left = divmod(rest.get(ONE, 0), step)
        coarse = add(coarse, constant(share * step))
        fine = add(fine, constant(left))
        low, high = known.lower(fine), known.upper(fine)
        if low is not None and high is not None and low >= 0 and high < step:
            return step, coarse, fine
    return 1, rest, {}


def _nested(rest: Poly, number: int, known: Known) -> Poly | None:
    """`(x // c + k) // d` is `(x + c*k) // (c*d)`."""
    inner = [monomial for monomial in rest if monomial]
    if len(inner) != 1 or len(inner[0]) != 1 or rest[inner[0]] != 1:
        return None
    factor = inner[0][0]
    if not isinstance(factor, Binary) or factor.op != "floordiv":
        return None
    if not isinstance(factor.b, Const) or int(factor.b.value) <= 0:
        return None
    c = int(factor.b.value)
    x = add(poly(factor.a, known.polys), constant(c * rest.get(ONE, 0)))
    if c * number > _MOST or not (known.exact(factor.a) and known.fits(x)):
        return None
    d = Const(c * number, factor.dtype)
    simpler = _or(quotient(expression(x), d, known), _divided(expression(x), d))
    return poly(simpler, known.polys)


def _without_inner_remainders(total: Poly, number: int, known: Known) -> Poly:
    """`(k * (x % c)) % d` is `(k * x) % d` if d divides k * c."""
    result: Poly = {}
    for monomial, coefficient in total.items():
        inner = _remainder_multiple(monomial, coefficient, number)
        part = {monomial: coefficient}
        if inner is not None and _keeps_remainders(
            poly(inner, known.polys), number, known
        ):
            part = scaled(poly(inner, known.polys), coefficient)
        result = add(result, part)
    return result


def _remainder_multiple(
    monomial: tuple[Expr, ...], coefficient: int, number: int
) -> Expr | None:
    if len(monomial) != 1 or not isinstance(monomial[0], Binary):
        return None
    factor = monomial[0]
    if factor.op != "floormod" or not isinstance(factor.b, Const):
        return None
    period = int(factor.b.value)
    return factor.a if period and coefficient * period % number == 0 else None


def _symbolic(total: Poly, d: Expr, known: Known, op: str) -> Expr | None:
    """The same for a positive symbolic divisor n: `(i*n + j) // n`."""
    if poly(d, known.polys) != {(d,): 1} or (known.interval(d)[0] or 0) < 1:
        return None
    if not known.fits(total):
        return None
    whole: Poly = {}
    rest: Poly = {}
    for monomial, coefficient in total.items():
        if d in monomial:
            left = list(monomial)
            left.remove(d)
            whole = add(whole, {tuple(left): coefficient})
        else:
            rest[monomial] = coefficient
    room = add(add({(d,): 1}, rest, -1), constant(1), -1)
    if known.at_least_zero(rest) and known.at_least_zero(room):
        return expression(whole if op == "floordiv" else rest)
    if not whole or not known.fits(rest):
        return None
    part = Binary(op, expression(rest), d)
    return part if op == "floormod" else expression(add(whole, {(part,): 1}))


def rejoined(total: Poly, known: Known) -> Poly:
    """Combine `c * (x // c) + x % c` to x.

    `c * (x // c % b) + x % c` is `x % (b * c)`.
    """
    for monomial, coefficient in total.items():
        if len(monomial) != 1 or not isinstance(monomial[0], Binary):
            continue
        factor = monomial[0]
        if factor.op != "floormod" or not isinstance(factor.b, Const):
            continue
        c = int(factor.b.value)
        weight = coefficient * c
        if c <= 0 or not any(
            value % weight == 0 for other, value in total.items() if other != monomial
        ):
            continue
        divided = Binary("floordiv", factor.a, factor.b)
        above = _or(quotient(factor.a, factor.b, known), divided)
        high = poly(above, known.polys)
        found = _digit_above(total, above, weight)
        if found is not None and c * found[1] <= _MOST:
            digits = {found[0]: weight, monomial: coefficient}
            left = add(total, digits, -1)
            both = Binary("floormod", factor.a, Const(c * found[1], factor.b.dtype))
            return rejoined(add(left, {(both,): coefficient}), known)
        want = scaled(high, weight)
        if want and all(total.get(m) == value for m, value in want.items()):
            joined = add(add(total, want, -1), {monomial: coefficient}, -1)
            whole = scaled(poly(factor.a, known.polys), coefficient)
            return rejoined(add(joined, whole), known)
    return total


def _digit_above(total: Poly, x: Expr, weight: int) -> tuple[Monomial, int] | None:
    """The term `weight * (x % b)` of a sum, and b; None if there is none."""
    for monomial, coefficient in total.items():
        match monomial:
            case (Binary(op="floormod", a=a, b=Const(value=size)),) if (
                a == x and coefficient == weight and int(size) > 0
            ):
                return monomial, int(size)
    return None
