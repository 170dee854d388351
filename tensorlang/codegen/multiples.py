"""Alignment of indices: powers of two that divide them for all variable values.

Only powers of two stay divisors when integers wrap around.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Final, TypeAlias

from tensorlang.ir.nodes import Binary, Compare, Const, Expr, Ramp, Var
from tensorlang.ir.simplification.conditions import conjuncts

# a divisor of each variable's value
Multiples: TypeAlias = Mapping[Var, int]


def multiples_where(cond: Expr) -> Multiples:
    """Divisibility facts in a condition: `n % 4 == 0`, or `n & 3 == 0`."""
    found: dict[Var, int] = {}
    for test in conjuncts(cond):
        match test:
            case Compare(op="eq", a=Binary(a=Var() as var) as rest, b=Const(value=0)):
                divisor = _divisor(rest)
                if divisor > 1:
                    found[var] = divisor
    return found


def _divisor(rest: Binary) -> int:
    """The divisor of a remainder expression; 1 if it is none."""
    match rest:
        case Binary(op="floormod", b=Const(value=size)):
            return abs(int(size))
        case Binary(op="and", b=Const(value=mask)) if int(mask) & (int(mask) + 1) == 0:
            return int(mask) + 1
    return 1


# comparisons that change at a bound, and their distance from it
CHANGES: Final = {"lt": 0, "ge": 0, "le": 1, "gt": 1}


def multiple(index: Expr, known: Multiples) -> int:
    """A power of two that divides `index`; 0 if the index is 0.

    `known` maps variables to divisors of their values.
    """
    found = _multiple(index, known) if index.dtype.is_integer else 1
    return found & -found


def _multiple(index: Expr, known: Multiples) -> int:
    match index:
        case Const(value=value):
            return abs(int(value))
        case Var():
            return known.get(index, 1)
        case Binary(op="add" | "sub", a=a, b=b):
            return gcd(multiple(a, known), multiple(b, known))
        case Binary(op="mul", a=a, b=b):
            return multiple(a, known) * multiple(b, known)
        case Binary(op="floormod", a=a, b=Const(value=divisor)):
            return gcd(multiple(a, known), int(divisor))
        case Binary(op="shl", a=a, b=Const(value=bits)) if bits >= 0:
            return multiple(a, known) << int(bits)
    return 1


def quotient_is_uniform(ramp: Ramp, divisor: int, known: Multiples) -> bool:
    """Whether `ramp // divisor` is the same in all lanes.

    Base and divisor are multiples of `step`, so the base's remainder is at most
    `divisor - step`, and the last lane does not reach the next multiple.
    """
    return divisor > 0 and is_uniform(ramp, divisor, known)


def is_uniform(ramp: Ramp, bound: int, known: Mapping[Var, int]) -> bool:
    """Whether all lanes of a ramp are on the same side of each multiple of a bound."""
    if not isinstance(ramp.stride, Const) or ramp.stride.value < 0:
        return False
    step = gcd(multiple(ramp.base, known), bound)
    return step > int(ramp.stride.value) * (ramp.lanes - 1)
