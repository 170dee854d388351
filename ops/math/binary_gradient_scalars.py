"""Gradients of arithmetic on two operands: what they are for an element."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from tensorlang.ir import intrinsics
from tensorlang.ir.nodes import Select, as_expr

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Expr

Pair: TypeAlias = "tuple[Expr, Expr]"


def add(dy: Expr, a: Expr, b: Expr) -> Pair:
    """Of a + b."""
    del a, b
    return dy, dy


def subtract(dy: Expr, a: Expr, b: Expr) -> Pair:
    """Of a - b."""
    del a, b
    return dy, -dy


def multiply(dy: Expr, a: Expr, b: Expr) -> Pair:
    """Of a * b."""
    return dy * b, dy * a


def divide(dy: Expr, a: Expr, b: Expr) -> Pair:
    """Of a / b."""
    return dy / b, -dy * ((a / b) / b)


def maximum(dy: Expr, a: Expr, b: Expr) -> Pair:
    """Of the larger one."""
    return _to(dy, a < b, a.equal(b)), _to(dy, b < a, a.equal(b))


def minimum(dy: Expr, a: Expr, b: Expr) -> Pair:
    """Of the smaller one."""
    return _to(dy, a > b, a.equal(b)), _to(dy, b > a, a.equal(b))


def _to(dy: Expr, lost: Expr, tied: Expr) -> Expr:
    """What an operand gets: nothing where it lost, half in a tie, all beside NaN."""
    return Select(lost, as_expr(0.0, dy.dtype), Select(tied, dy * 0.5, dy))


def power(dy: Expr, a: Expr, b: Expr) -> Pair:
    """Of a to the power b: 0 where b is 0, and where a is 0 and b is not below."""
    zero = as_expr(0.0, dy.dtype)
    base = dy * (b * intrinsics.pow(a, b - 1.0))
    exponent = dy * (intrinsics.pow(a, b) * intrinsics.log(a))
    return (
        Select(b.equal(0.0), zero, base),
        Select(a.equal(0.0) & (b >= 0.0), zero, exponent),
    )
