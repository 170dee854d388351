"""Powers of two that divide an index whatever its variables are: its alignment.

Other divisors are of no use: a multiple of 6 that wraps is none any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Final, TypeAlias

from tensorlang.codegen.blocks import conjuncts
from tensorlang.ir.nodes import Binary, Compare, Const, Expr, Ramp, Var

# what divides the value of a variable
Multiples: TypeAlias = Mapping[Var, int]


def multiples_where(cond: Expr) -> Multiples:
    """What a condition says of variables: `n % 4 == 0`, or `n & 3 == 0`."""
    found: dict[Var, int] = {}
    for test in conjuncts(cond):
        match test:
            case Compare(op="eq", a=Binary(a=Var() as var) as rest, b=Const(value=0)):
                divisor = _divisor(rest)
                if divisor > 1:
                    found[var] = divisor
    return found


def _divisor(rest: Binary) -> int:
    """By what a remainder is one; 1 where it is none."""
    match rest:
        case Binary(op="floormod", b=Const(value=size)):
            return abs(int(size))
        case Binary(op="and", b=Const(value=mask)) if int(mask) & (int(mask) + 1) == 0:
            return int(mask) + 1
    return 1


# the comparisons that change at a bound, and how far behind it
CHANGES: Final = {"lt": 0, "ge": 0, "le": 1, "gt": 1}


def multiple(index: Expr, known: Multiples) -> int:
    """A power of two that divides `index`; 0 where the index is 0.

    `known` gives what divides variables that stand for a value.
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
    """Whether no lane of a ramp passes a multiple of `divisor` that the first has not.

    The base is a multiple of `step`, and so is the divisor: what is left of the base
    ends at least `step` below the divisor, and the last lane stays below that.
    """
    return divisor > 0 and is_uniform(ramp, divisor, known)


def is_uniform(ramp: Ramp, bound: int, known: Mapping[Var, int]) -> bool:
    """Whether all lanes of a ramp lie below each multiple of a bound, or none does."""
    if not isinstance(ramp.stride, Const) or ramp.stride.value < 0:
        return False
    step = gcd(multiple(ramp.base, known), bound)
    return step > int(ramp.stride.value) * (ramp.lanes - 1)
