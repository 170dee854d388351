"""Indices as linear forms over slices `(var // start) % size` of loop variables.

Fusing and splitting leave `//` and `%` in indices. Exact multiples divide out, and
terms too small to matter vanish, until only slices of single variables are left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import Final, TypeAlias

from tensorlang.ir.contents import free_vars
from tensorlang.ir.nodes import Binary, Const, Expr, Var
from tensorlang.scheduling.linear import Linear, linear, multiples, number

Extents: TypeAlias = Mapping[Var, int | None]  # the loops that vary; None: unknown
FAR: Final = 1 << 63
_KEPT: Final = 1 << 14  # cached forms: schedules repeat their queries


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


@lru_cache(maxsize=_KEPT)
def slice_of(atom: Expr) -> Slice | None:
    """An atom as a slice of a variable by constants, if it is one."""
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
    """The linear form of an index, with `//` and `%` resolved as ranges allow."""
    if isinstance(expr, (Var, Const)):
        return linear(expr)
    used = free_vars(expr)
    return _spread(expr, frozenset((v, extents[v]) for v in used if v in extents))


@lru_cache(maxsize=_KEPT)
def _spread(expr: Expr, own: frozenset[tuple[Var, int | None]]) -> Linear:
    extents = dict(own)
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
    whole, rest = multiples(form, divisor)
    for unit in sorted({gcd(c, divisor) for _, c in rest.terms}, reverse=True):
        coarse, fine = multiples(rest, unit)
        low, high = bounds(fine, extents)
        if low >= 0 and high < unit:
            quotient, remains = _sliced(coarse, divisor // unit, extents)
            return whole + quotient, remains.scaled(unit) + fine
    quotient, remains = _sliced(rest, divisor, extents)
    return whole + quotient, remains


def _sliced(form: Linear, divisor: int, extents: Extents) -> tuple[Linear, Linear]:
    """Quotient and remainder of a form without multiples of the divisor."""
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
    """The minimum and maximum of a form; beyond 2**63 if unknown."""
    low = high = form.constant
    for atom, c in form.terms:
        top = _top(atom, extents)
        if top is None:
            return -FAR, FAR
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
