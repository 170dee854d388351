"""Arithmetic of whole numbers: what it does to their elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorlang.ir import f64
from tensorlang.ir.intrinsics import floor
from tensorlang.ir.nodes import Const, Select

if TYPE_CHECKING:
    from tensorlang.ir.dtypes import DType
    from tensorlang.ir.nodes import Expr


def floor_divide(a: Expr, b: Expr) -> Expr:
    """The quotient, rounded towards minus infinity; 0 where the divisor is 0."""
    zero, one = Const(0, a.dtype), Const(1, a.dtype)
    odd = b.equal(zero)
    if not _signed(a.dtype):
        return Select(odd, zero, _quotient(a, Select(odd, one, b)))
    minus = b.equal(Const(-1, a.dtype))  # the smallest number has no opposite: wraps
    safe = _quotient(a, Select(odd | minus, one, b))
    return Select(odd, zero, Select(minus, zero - a, safe))


def remainder(a: Expr, b: Expr) -> Expr:
    """What is left of a, with the sign of b; 0 where the divisor is 0."""
    return Select(b.equal(0), Const(0, a.dtype), a - floor_divide(a, b) * b)


def power(a: Expr, b: Expr) -> Expr:
    """By squaring; the inverse of 1 and -1 is whole, any other one is 0."""
    made: Expr = Const(1, a.dtype)
    zero, one = Const(0, a.dtype), made
    square = a
    for bit in range(a.dtype.bits):
        made = Select(
            (b & Const(_bit(bit, a.dtype), a.dtype)).equal(0), made, made * square
        )
        square = square * square
    if not _signed(a.dtype):
        return made
    sign = Select((b & one).equal(0), one, a)
    inverse = Select(a.equal(1) | a.equal(-1), sign, zero)
    return Select(b < 0, inverse, made)


def _quotient(a: Expr, b: Expr) -> Expr:
    """By f64 where that holds both: its quotient is right, and comes in vectors."""
    if a.dtype.bits > 32:
        return a // b
    return floor(a.cast(f64) / b.cast(f64)).cast(a.dtype)


def _signed(dtype: DType) -> bool:
    return int(dtype.limits[0]) < 0


def _bit(bit: int, dtype: DType) -> int:
    """The number of this bit, which may be the sign's."""
    return dtype.limits[0] if _signed(dtype) and bit == dtype.bits - 1 else 1 << bit
