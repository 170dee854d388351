"""Integer expressions as linear forms: `3*i + j//4 + 7`, anything else being an atom.

Indices are compared by subtracting their forms, where equal terms cancel exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tensorlang.ir.contents import free_vars
from tensorlang.ir.dtypes import i64
from tensorlang.ir.nodes import Binary, Const, Expr, Unary, Var

_KEPT: Final = 1 << 14  # forms; schedules look the same expressions up repeatedly


@dataclass(frozen=True, slots=True)
class Linear:
    """The sum of `coefficient * atom` over `terms`, plus `constant`."""

    terms: tuple[tuple[Expr, int], ...] = ()
    constant: int = 0

    def __add__(self, other: Linear) -> Linear:
        return self._plus(other, 1)

    def __sub__(self, other: Linear) -> Linear:
        return self._plus(other, -1)

    def _plus(self, other: Linear, factor: int) -> Linear:
        constant = self.constant + factor * other.constant
        if not other.terms:
            return Linear(self.terms, constant)
        total = dict(self.terms)
        for atom, coefficient in other.terms:
            total[atom] = total.get(atom, 0) + factor * coefficient
        return _form(total, constant)

    def scaled(self, factor: int) -> Linear:
        """This form times an integer."""
        if factor == 1:
            return self
        return _form({a: c * factor for a, c in self.terms}, self.constant * factor)

    def shifted(self, amount: int) -> Linear:
        """This form plus an integer."""
        return Linear(self.terms, self.constant + amount) if amount else self

    @property
    def is_constant(self) -> bool:
        """Whether no atom is left."""
        return not self.terms

    @property
    def vars(self) -> frozenset[Var]:
        """The variables in all atoms."""
        return frozenset().union(*(free_vars(atom) for atom, _ in self.terms))

    def expr(self) -> Expr:
        """The expression: positive terms first, the constant last."""
        result: Expr | None = None
        rest = self.constant
        if rest and all(c < 0 for _, c in self.terms):
            result, rest = Const(rest, i64), 0
        for atom, c in sorted(self.terms, key=lambda term: term[1] < 0):
            part = atom if abs(c) == 1 else atom * abs(c)
            if result is None:
                result = part if c > 0 else Const(0, i64) - part
            else:
                result = result + part if c > 0 else result - part
        if result is None:
            return Const(0, i64)
        if rest:
            return result + rest if rest > 0 else result - abs(rest)
        return result


def _form(terms: Mapping[Expr, int], constant: int) -> Linear:
    return Linear(tuple([term for term in terms.items() if term[1]]), constant)


def number(value: int) -> Linear:
    """The constant form."""
    return Linear((), value)


@lru_cache(maxsize=_KEPT)
def linear(expr: Expr) -> Linear:
    """The linear form of a scalar integer expression; in the worst case, one atom."""
    match expr:
        case Const(value=value):
            return number(int(value))
        case Unary(op="neg", a=a):
            return linear(a).scaled(-1)
        case Binary(op="add", a=a, b=b):
            return linear(a) + linear(b)
        case Binary(op="sub", a=a, b=b):
            return linear(a) - linear(b)
        case Binary(op="mul", a=a, b=b):
            return _product(expr, linear(a), linear(b))
        case Binary(op="floordiv", a=a, b=Const(value=c)) if c > 0:
            return divided(linear(a), int(c))
        case Binary(op="floormod", a=a, b=Const(value=c)) if c > 0:
            whole = linear(a)
            return remainder(whole, int(c))
    return Linear(((expr, 1),))


def _product(expr: Expr, a: Linear, b: Linear) -> Linear:
    if b.is_constant:
        return a.scaled(b.constant)
    if a.is_constant:
        return b.scaled(a.constant)
    return Linear(((expr, 1),))


def divided(form: Linear, divisor: int) -> Linear:
    """`form // divisor`: multiples of the divisor divide exactly."""
    out, rest = multiples(form, divisor)
    if rest.is_constant and 0 <= rest.constant < divisor:
        return out
    return out + Linear(((rest.expr() // divisor, 1),))


def remainder(form: Linear, divisor: int) -> Linear:
    """`form % divisor`: multiples of the divisor vanish."""
    _, rest = multiples(form, divisor)
    if rest.is_constant:
        return number(rest.constant % divisor)
    return Linear(((rest.expr() % divisor, 1),))


def multiples(form: Linear, divisor: int) -> tuple[Linear, Linear]:
    """The quotient of the divisible terms, and the rest (its constant in 0..d-1)."""
    exact = _form(
        {a: c // divisor for a, c in form.terms if c % divisor == 0},
        form.constant // divisor,
    )
    rest = _form({a: c for a, c in form.terms if c % divisor}, form.constant % divisor)
    return exact, rest
