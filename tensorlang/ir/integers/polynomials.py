"""Integer polynomials over i64 expressions: the normal form of index arithmetic.

A polynomial maps monomials to coefficients; a monomial is a sorted tuple of factors
that are no sums themselves, empty for the constant. Sums, differences and products of
i64 form a ring whether they wrap or not, so collecting terms is always exact.
Conclusions from a polynomial's integer value need a proof that it does not wrap:
`Known.fits`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final, TypeAlias

from tensorlang.ir.dtypes import i64
from tensorlang.ir.nodes import Binary, Const, Expr, Unary, Var, whole
from tensorlang.ir.visit import variables

Monomial: TypeAlias = tuple[Expr, ...]

ONE: Final[Monomial] = ()
MOST_TERMS: Final = 16  # a product of sums with more terms is not expanded
_MOST_FACTORS: Final = 16  # of a term


class Poly(dict[Monomial, int]):
    """A polynomial: the nonzero coefficient of each monomial, in order of appearance.

    Polynomials are shared by caches; only `accumulate` changes one, while it is made.
    """

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __add__(self, other: Poly) -> Poly:
        return self.plus(other)

    def __sub__(self, other: Poly) -> Poly:
        return self.plus(other, -1)

    def __neg__(self) -> Poly:
        return self.scaled(-1)

    def plus(self, other: Poly, times: int = 1) -> Poly:
        """`self + times * other`."""
        total = Poly(self)
        for monomial, coefficient in other.items():  # `accumulate`, called most often
            value = total.get(monomial, 0) + times * coefficient
            if value:
                total[monomial] = value
            else:
                total.pop(monomial, None)
        return total

    def accumulate(self, monomial: Monomial, coefficient: int) -> None:
        """Add a term in place."""
        value = self.get(monomial, 0) + coefficient
        if value:
            self[monomial] = value
        else:
            self.pop(monomial, None)

    def scaled(self, factor: int) -> Poly:
        """This polynomial times an integer."""
        if factor == 1:
            return self
        return Poly({m: c * factor for m, c in self.items()} if factor else ())

    def shifted(self, amount: int) -> Poly:
        """This polynomial plus an integer."""
        if not amount:
            return self
        total = Poly(self)
        total.accumulate(ONE, amount)
        return total

    def product(self, other: Poly) -> Poly:
        """The product, expanded."""
        total = Poly()
        for left, x in self.items():
            for right, y in other.items():
                total.accumulate(merged(left, right), x * y)
        return total

    def multiplies(self, other: Poly) -> bool:
        """Whether a product stays small: it has few terms, of few factors each."""
        factors = max(map(len, self), default=0) + max(map(len, other), default=0)
        return len(self) * len(other) <= MOST_TERMS and factors <= _MOST_FACTORS

    @property
    def constant(self) -> int:
        """The constant term."""
        return self.get(ONE, 0)

    @property
    def is_constant(self) -> bool:
        """Whether there is no other term."""
        return not self or (len(self) == 1 and ONE in self)

    @property
    def value(self) -> int | None:
        """The value of a constant polynomial, else None."""
        return self.constant if self.is_constant else None

    def at(self, factor: Expr) -> int:
        """The coefficient of a factor that is a term by itself."""
        return self.get((factor,), 0)

    def without(self, factor: Expr) -> Poly:
        """The polynomial without the term that is a factor by itself."""
        return self.plus(term(factor), -self.at(factor))

    @property
    def terms(self) -> tuple[tuple[Expr, int], ...]:
        """The terms but the constant: products of factors, with their coefficients."""
        return tuple([(_product(m), c) for m, c in self.items() if m])

    @property
    def vars(self) -> frozenset[Var]:
        """The variables in all factors."""
        return frozenset().union(*map(variables, chain.from_iterable(self)))

    def only(self, keep: Callable[[Expr], bool]) -> Poly:
        """The terms whose product of factors is to be kept, without the constant."""
        return Poly({m: c for m, c in self.items() if m and keep(_product(m))})

    def expr(self) -> Expr:
        """A sum: positive terms, negative ones, then the constant."""
        rest = _wrapped(self.constant)
        terms = [(m, _wrapped(c)) for m, c in self.items() if m]
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

    def ordered(self) -> Poly:
        """The polynomial with its terms in the order that `expr` writes them."""
        if min(self.values(), default=1) > 0:
            return self
        return Poly(sorted(self.items(), key=lambda term: not term[0] or term[1] < 0))


def number(value: int) -> Poly:
    """The polynomial without variables."""
    return Poly({ONE: value} if value else ())


def term(factor: Expr, coefficient: int = 1) -> Poly:
    """The polynomial of one factor."""
    return Poly({(factor,): coefficient})


def merged(a: Monomial, b: Monomial) -> Monomial:
    """The product of two monomials, with factors in a reproducible order."""
    if not a or not b:
        return a or b
    return tuple(sorted(a + b, key=_rank))


def factors(monomials: Iterable[Monomial]) -> list[Expr]:
    """The distinct factors, in order of appearance."""
    return list(dict.fromkeys(chain.from_iterable(monomials)))


def _rank(factor: Expr) -> tuple[int, str]:
    return (0, factor.name) if isinstance(factor, Var) else (1, repr(factor))


def _wrapped(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _less(total: Expr | None, monomial: Monomial, coefficient: int) -> Expr:
    if total is not None:
        return Binary("sub", total, _term(monomial, -coefficient))
    if coefficient == -1:
        return Unary("neg", _product(monomial))
    return _term(monomial, coefficient)


def _term(monomial: Monomial, coefficient: int) -> Expr:
    total = _product(monomial)
    return total if coefficient == 1 else Binary("mul", total, whole(coefficient, i64))


def _product(monomial: Monomial) -> Expr:
    total = monomial[0]
    for factor in monomial[1:]:
        total = Binary("mul", total, factor)
    return total


class Polys(dict[Expr, Poly]):
    """The polynomials of scalar i64 expressions, computed once: `polys[expr]`.

    What is no sum or product is a factor, unless it is a quotient of numbers;
    subclasses also take other quotients apart.
    """

    __slots__ = ()

    def __missing__(self, expr: Expr) -> Poly:
        found = self[expr] = self.read(expr)
        return found

    def read(self, expr: Expr) -> Poly:
        """The polynomial of an expression that has not been asked for before."""
        if isinstance(expr, Const):
            return number(int(expr.value))
        if isinstance(expr, (Binary, Unary)) and expr.dtype is i64:
            return self.arithmetic(expr)
        return term(expr)

    def arithmetic(self, expr: Binary | Unary) -> Poly:
        """The polynomial of an operation."""
        found = None
        if isinstance(expr, Unary):
            found = -self[expr.a] if expr.op == "neg" else None
        elif expr.op == "add":
            return self[expr.a] + self[expr.b]
        elif expr.op == "sub":
            return self[expr.a] - self[expr.b]
        elif expr.op == "mul":
            a, b = self[expr.a], self[expr.b]
            found = a.product(b) if a.multiplies(b) else None
        elif expr.op in ("floordiv", "floormod"):
            found = self.divided(expr)
        return term(expr) if found is None else found

    def divided(self, expr: Binary) -> Poly | None:
        """The polynomial of a `//` or `%`; None if it is a factor."""
        a, b = self[expr.a].value, self[expr.b].value
        if a is None or not b:
            return None
        return number(_wrapped(a // b if expr.op == "floordiv" else a % b))


def poly(expr: Expr) -> Poly:
    """The polynomial of a scalar i64 expression."""
    return Polys()[expr]
