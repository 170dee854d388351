"""Indices as linear forms over slices `(var // start) % size` of loop variables.

Fusing and splitting leave `//` and `%` in indices. What divides exactly comes out, and
what is too small to matter drops away, until only slices of single variables are left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import Final, TypeAlias

from tensorlang.ir.nodes import Binary, Const, Expr, Var
from tensorlang.scheduling.linear import Linear, linear, number

Extents: TypeAlias = Mapping[Var, int | None]  # the loops that vary; None: unknown
FAR: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Slice:
    """`(var // start) % size`, or `var // start` without a size."""

    var: Var
    start: int = 1
    size: int | None = None

    def form(self) -> Linear:
        """The slice as a linear form of one atom."""
        shifted = self.var if self.start == 1 else self.var // self.start
        atom = shifted if self.size is None else shifted % self.size
        return Linear(((atom, 1),))


def slice_of(atom: Expr) -> Slice | None:
    """The slice of a variable by constants that an atom is, if it is one."""
    match atom:
        case Var():
            return Slice(atom)
        case Binary(op="floordiv", a=Var() as var, b=Const(value=start)):
            return Slice(var, int(start))
        case Binary(op="floormod", a=a, b=Const(value=size)):
            inner = slice_of(a)
            if inner is not None and inner.size is None:
                return Slice(inner.var, inner.start, int(size))
    return None


def spread(expr: Expr, extents: Extents) -> Linear:
    """The linear form of an index, `//` and `%` taken apart as far as ranges allow."""
    match expr:
        case Binary(op="add", a=a, b=b):
            return spread(a, extents) + spread(b, extents)
        case Binary(op="sub", a=a, b=b):
            return spread(a, extents) - spread(b, extents)
        case Binary(op="mul", a=a, b=Const(value=c)):
            return spread(a, extents).scaled(int(c))
        case Binary(op="mul", a=Const(value=c), b=b):
            return spread(b, extents).scaled(int(c))
        case Binary(op="floordiv", a=a, b=Const(value=c)) if c > 0:
            return _divided(spread(a, extents), int(c), extents)[0]
        case Binary(op="floormod", a=a, b=Const(value=c)) if c > 0:
            return _divided(spread(a, extents), int(c), extents)[1]
    return linear(expr)


def _divided(form: Linear, divisor: int, extents: Extents) -> tuple[Linear, Linear]:
    """`form // divisor` and `form % divisor`."""
    whole, rest = _multiples(form, divisor)
    for unit in sorted({gcd(c, divisor) for _, c in rest.terms}, reverse=True):
        coarse, fine = _multiples(rest, unit)
        low, high = bounds(fine, extents)
        if low >= 0 and high < unit:
            quotient, remains = _sliced(coarse, divisor // unit, extents)
            return whole + quotient, remains.scaled(unit) + fine
    quotient, remains = _sliced(rest, divisor, extents)
    return whole + quotient, remains


def _multiples(form: Linear, unit: int) -> tuple[Linear, Linear]:
    """What of a form divides by `unit`, divided, and the rest."""
    terms = tuple((a, c // unit) for a, c in form.terms if c % unit == 0)
    whole = Linear(terms, form.constant // unit)
    return whole, form - whole.scaled(unit)


def _sliced(form: Linear, divisor: int, extents: Extents) -> tuple[Linear, Linear]:
    """Quotient and remainder of a form with nothing left to take out."""
    low, high = bounds(form, extents)
    if low >= 0 and high < divisor:
        return number(0), form
    part = None
    if len(form.terms) == 1 and form.terms[0][1] == 1 and form.constant == 0:
        part = slice_of(form.terms[0][0])
    match part:
        case Slice(var, start, None):
            return Slice(var, start * divisor).form(), Slice(var, start, divisor).form()
        case Slice(var, start, int() as size) if size % divisor == 0:
            upper = Slice(var, start * divisor, size // divisor)
            return upper.form(), Slice(var, start, divisor).form()
    expr = form.expr()
    return Linear(((expr // divisor, 1),)), Linear(((expr % divisor, 1),))


def bounds(form: Linear, extents: Extents) -> tuple[int, int]:
    """The least and greatest value of a form; beyond 2**63 where unknown."""
    low = high = form.constant
    for atom, c in form.terms:
        top = _top(atom, extents)
        if top is None:
            return -FAR, FAR
        low, high = low + min(0, c * top), high + max(0, c * top)
    return low, high


def _top(atom: Expr, extents: Extents) -> int | None:
    """The greatest value of a slice of a loop variable (the least is 0)."""
    part = slice_of(atom)
    if part is None or part.var not in extents:
        return None
    extent = extents[part.var]
    tops = [] if extent is None else [max(extent - 1, 0) // part.start]
    if part.size is not None:
        tops.append(part.size - 1)
    return min(tops, default=None)
