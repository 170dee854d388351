"""Integer polynomials over i64 expressions: the normal form of index arithmetic.

A polynomial maps monomials to coefficients; a monomial is a sorted tuple of factors
that are no sums themselves, empty for the constant. Sums, differences and products of
i64 form a ring whether they wrap or not, so collecting terms is always exact.
Conclusions from a polynomial's integer value need a proof that it does not wrap:
`Known.fits`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final, TypeAlias

from tensorlang.ir.dtypes import i64
from tensorlang.ir.nodes import Binary, Const, Expr, Unary, Var, whole

Monomial: TypeAlias = tuple[Expr, ...]
Poly: TypeAlias = dict[Monomial, int]

ONE: Final[Monomial] = ()
MOST_TERMS: Final = 16  # a product of sums with more terms is not expanded
_MOST_FACTORS: Final = 16  # of a term


def constant(value: int) -> Poly:
    """The polynomial without variables."""
    return {ONE: value} if value else {}


def add(a: Mapping[Monomial, int], b: Mapping[Monomial, int], scale: int = 1) -> Poly:
    """`a + scale * b`."""
    total = dict(a)
    for monomial, coefficient in b.items():
        accumulate(total, monomial, scale * coefficient)
    return total


def accumulate(total: Poly, monomial: Monomial, coefficient: int) -> None:
    """Add a term to a polynomial in place."""
    value = total.get(monomial, 0) + coefficient
    if value:
        total[monomial] = value
    else:
        total.pop(monomial, None)


def scaled(a: Mapping[Monomial, int], factor: int) -> Poly:
    """`factor * a`."""
    return {m: c * factor for m, c in a.items()} if factor else {}


def product(a: Mapping[Monomial, int], b: Mapping[Monomial, int]) -> Poly:
    """`a * b`, expanded."""
    total: Poly = {}
    for left, x in a.items():
        for right, y in b.items():
            accumulate(total, merged(left, right), x * y)
    return total


def multiplies(a: Mapping[Monomial, int], b: Mapping[Monomial, int]) -> bool:
    """Whether a product stays small: it has few terms, of few factors each."""
    factors = max(map(len, a), default=0) + max(map(len, b), default=0)
    return len(a) * len(b) <= MOST_TERMS and factors <= _MOST_FACTORS


def merged(a: Monomial, b: Monomial) -> Monomial:
    """The product of two monomials, with factors in a reproducible order."""
    if not a or not b:
        return a or b
    return tuple(sorted(a + b, key=_rank))


def _rank(factor: Expr) -> tuple[int, str]:
    return (0, factor.name) if isinstance(factor, Var) else (1, repr(factor))


def poly(expr: Expr, known: dict[Expr, Poly] | None = None) -> Poly:
    """The polynomial of a scalar i64 expression; `known` memoises subexpressions."""
    if isinstance(expr, Const):
        return constant(int(expr.value))
    if not isinstance(expr, (Binary, Unary)) or expr.dtype != i64:
        return {(expr,): 1}
    memo = {} if known is None else known
    found = memo.get(expr)
    if found is None:
        found = memo[expr] = _compound(expr, memo)
    return found


def _compound(expr: Binary | Unary, memo: dict[Expr, Poly]) -> Poly:
    if isinstance(expr, Unary):
        return scaled(poly(expr.a, memo), -1) if expr.op == "neg" else {(expr,): 1}
    if expr.op in ("add", "sub"):
        sign = 1 if expr.op == "add" else -1
        return add(poly(expr.a, memo), poly(expr.b, memo), sign)
    if expr.op == "mul":
        a, b = poly(expr.a, memo), poly(expr.b, memo)
        if multiplies(a, b):
            return product(a, b)
    return {(expr,): 1}


def value_of(a: Mapping[Monomial, int]) -> int | None:
    """The value of a constant polynomial, else None."""
    if not a:
        return 0
    return a[ONE] if len(a) == 1 and ONE in a else None


def expression(a: Mapping[Monomial, int]) -> Expr:
    """The polynomial as a sum: positive terms, negative ones, then the constant."""
    rest = _wrapped(a.get(ONE, 0))
    terms = [(m, _wrapped(c)) for m, c in a.items() if m]
    total: Expr | None = None
    for monomial, coefficient in terms:
        if coefficient > 0:
            part = _term(monomial, coefficient)
            total = part if total is None else Binary("add", total, part)
    if total is None and (rest > 0 or not terms):
        total, rest = whole(rest, i64), 0
    for monomial, coefficient in terms:
        if coefficient < 0:
            total = _less(total, monomial, coefficient)
    assert total is not None
    if not rest:
        return total
    op = "add" if rest > 0 else "sub"
    return Binary(op, total, whole(abs(rest), i64))


def _wrapped(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _less(total: Expr | None, monomial: Monomial, coefficient: int) -> Expr:
    if total is not None:
        return Binary("sub", total, _term(monomial, -coefficient))
    if coefficient == -1:
        return Unary("neg", _term(monomial, 1))
    return _term(monomial, coefficient)


def _term(monomial: Monomial, coefficient: int) -> Expr:
    total = monomial[0]
    for factor in monomial[1:]:
        total = Binary("mul", total, factor)
    if coefficient == 1:
        return total
    return Binary("mul", total, whole(coefficient, i64))


def ordered(a: Poly) -> Poly:
    """The polynomial with its terms in the order that `expression` writes them."""
    if min(a.values(), default=1) > 0:
        return a
    terms = sorted(a.items(), key=lambda term: not term[0] or term[1] < 0)
    return dict(terms)


def factors(a: Iterable[Monomial]) -> list[Expr]:
    """The distinct factors, in order of appearance."""
    return list(dict.fromkeys(chain.from_iterable(a)))
