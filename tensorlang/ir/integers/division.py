"""Simplify floordiv and floormod in index arithmetic, given facts about operands.

`x // d` is split by the multiples of d in x: `(32*a + b) // 32` is `a + b // 32`, which
is `a` if b is within 0 .. 31; `%` likewise. d may be an expression. All of this holds
for integers: if terms may wrap, only remainders by powers of two are split.
"""

from __future__ import annotations

from typing import Final

from tensorlang.ir.dtypes import i64
from tensorlang.ir.integers.indices import common_step, divisor_of, multiples
from tensorlang.ir.integers.known import Known
from tensorlang.ir.integers.polynomials import Monomial, Poly, number, term
from tensorlang.ir.nodes import Binary, Const, Expr

_MOST: Final = i64.limits[1]


def quotient(x: Expr, d: Expr, known: Known) -> Expr | None:
    """A simpler form of `x // d`, or None."""
    total, divisor = known.polys[x], known.polys[d]
    by = divisor.value
    if by is None:
        return _symbolic(total, d, known, "floordiv")
    if by <= 0 or not known.fits(total):
        return None
    whole, rest = multiples(total, by)
    if not known.fits(rest):
        return None
    found = _quotient_of_rest(rest, by, known)
    if found is not None:
        return (whole + found).expr()
    if not whole:
        return None
    part = Binary("floordiv", rest.expr(), Const(by, d.dtype))
    return (whole + term(part)).expr()


def remainder(x: Expr, d: Expr, known: Known) -> Expr | None:
    """A simpler form of `x % d`, or None."""
    total, divisor = known.polys[x], known.polys[d]
    by = divisor.value
    if by is None:
        return _symbolic(total, d, known, "floormod")
    if by <= 0 or not _keeps_remainders(total, by, known):
        return None
    whole, rest = multiples(_without_inner_remainders(total, by, known), by)
    if not _keeps_remainders(rest, by, known):
        return None
    low, high = known.span(rest)
    if low is not None and high is not None and low // by == high // by:
        return rest.shifted(-by * (low // by)).expr()
    step, coarse, fine = common_step(rest, by, known.span)
    if step > 1:
        inner = coarse.expr()
        small = Binary("floormod", inner, Const(by // step, d.dtype))
        simpler = _or(remainder(inner, small.b, known), small)
        return (known.polys[simpler].scaled(step) + fine).expr()
    if not whole and rest == total:
        return None
    return Binary("floormod", rest.expr(), Const(by, d.dtype))


def _keeps_remainders(total: Poly, by: int, known: Known) -> bool:
    """Whether wrapping preserves the remainder of a sum."""
    return by & (by - 1) == 0 or known.fits(total)


def _quotient_of_rest(rest: Poly, by: int, known: Known) -> Poly | None:
    """`rest // by`, if it is constant, or a division by less."""
    low, high = known.span(rest)
    if low is not None and high is not None and low // by == high // by:
        return number(low // by)
    step, coarse, _ = common_step(rest, by, known.span)
    if step > 1:
        inner = coarse.expr()
        d = Const(by // step, inner.dtype)
        simpler = _or(quotient(inner, d, known), _divided(inner, d))
        return known.polys[simpler]
    return _nested(rest, by, known)


def _or(found: Expr | None, otherwise: Expr) -> Expr:
    return otherwise if found is None else found


def _divided(x: Expr, d: Const) -> Expr:
    return x if d.value == 1 else Binary("floordiv", x, d)


def _nested(rest: Poly, by: int, known: Known) -> Poly | None:
    """`(x // c + k) // d` is `(x + c*k) // (c*d)`."""
    terms = rest.terms
    if len(terms) != 1 or terms[0][1] != 1:
        return None
    factor, c = terms[0][0], divisor_of(terms[0][0])
    if not isinstance(factor, Binary) or factor.op != "floordiv" or c is None:
        return None
    x = known.polys[factor.a].shifted(c * rest.constant)
    if c * by > _MOST or not (known.exact(factor.a) and known.fits(x)):
        return None
    d = Const(c * by, factor.dtype)
    simpler = _or(quotient(x.expr(), d, known), _divided(x.expr(), d))
    return known.polys[simpler]


def _without_inner_remainders(total: Poly, by: int, known: Known) -> Poly:
    """`(k * (x % c)) % d` is `(k * x) % d` if d divides k * c."""
    result = Poly()
    for monomial, coefficient in total.items():
        part, found = Poly({monomial: coefficient}), _remainder_in(monomial)
        if found is not None and coefficient * found[1] % by == 0:
            inner = known.polys[found[0]]
            if _keeps_remainders(inner, by, known):
                part = inner.scaled(coefficient)
        result += part
    return result


def _remainder_in(monomial: Monomial) -> tuple[Expr, int] | None:
    """X and c, if a monomial is `x % c` for a positive constant c."""
    match monomial:
        case (Binary(op="floormod", a=x, b=Const(value=c)),) if c > 0:
            return x, int(c)
    return None


def _symbolic(total: Poly, d: Expr, known: Known, op: str) -> Expr | None:
    """The same for a positive symbolic divisor n: `(i*n + j) // n`."""
    divisor = term(d)
    if known.polys[d] != divisor or (known.interval(d)[0] or 0) < 1:
        return None
    if not known.fits(total):
        return None
    whole, rest = Poly(), Poly()
    for monomial, coefficient in total.items():
        if d in monomial:
            at = monomial.index(d)
            whole.accumulate(monomial[:at] + monomial[at + 1 :], coefficient)
        else:
            rest[monomial] = coefficient
    room = (divisor - rest).shifted(-1)
    if known.at_least_zero(rest) and known.at_least_zero(room):
        return (whole if op == "floordiv" else rest).expr()
    if not whole or not known.fits(rest):
        return None
    part = Binary(op, rest.expr(), d)
    return part if op == "floormod" else (whole + term(part)).expr()


def rejoined(total: Poly, known: Known) -> Poly:
    """Combine `c * (x // c) + x % c` to x.

    `c * (x // c % b) + x % c` is `x % (b * c)`.
    """
    for monomial, coefficient in total.items():
        found = _remainder_in(monomial)
        if found is None:
            continue
        (x, c), weight = found, coefficient * found[1]
        if not any(
            value % weight == 0 for other, value in total.items() if other != monomial
        ):
            continue
        d = Const(c, i64)
        above = _or(quotient(x, d, known), Binary("floordiv", x, d))
        own, digit = Poly({monomial: coefficient}), _digit_above(total, above, weight)
        if digit is not None and c * digit[1] <= _MOST:
            both = Binary("floormod", x, Const(c * digit[1], i64))
            left = total - Poly({digit[0]: weight}) - own
            return rejoined(left + term(both, coefficient), known)
        want = known.polys[above].scaled(weight)
        if want and all(total.get(m) == value for m, value in want.items()):
            whole = known.polys[x].scaled(coefficient)
            return rejoined(total - want - own + whole, known)
    return total


def _digit_above(total: Poly, x: Expr, weight: int) -> tuple[Monomial, int] | None:
    """The term `weight * (x % b)` of a sum, and b; None if there is none."""
    for monomial, coefficient in total.items():
        found = _remainder_in(monomial)
        if found is not None and found[0] == x and coefficient == weight:
            return monomial, found[1]
    return None
