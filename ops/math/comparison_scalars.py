"""Comparisons and logic: what comes out for an element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorlang.ir.intrinsics import isinf, isnan
from tensorlang.ir.nodes import as_expr

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Expr

__all__ = [
    "equal",
    "greater",
    "greater_equal",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "not_equal",
]


def equal(a: Expr, b: Expr) -> Expr:
    """Whether a is b."""
    return a.equal(b)


def not_equal(a: Expr, b: Expr) -> Expr:
    """Whether a is not b."""
    return a.not_equal(b)


def less(a: Expr, b: Expr) -> Expr:
    """Whether a is below b."""
    return a < b


def less_equal(a: Expr, b: Expr) -> Expr:
    """Whether a is not above b."""
    return a <= b


def greater(a: Expr, b: Expr) -> Expr:
    """Whether a is above b."""
    return a > b


def greater_equal(a: Expr, b: Expr) -> Expr:
    """Whether a is not below b."""
    return a >= b


def logical_and(a: Expr, b: Expr) -> Expr:
    """Whether both hold."""
    return _truth(a) & _truth(b)


def logical_or(a: Expr, b: Expr) -> Expr:
    """Whether one holds."""
    return _truth(a) | _truth(b)


def logical_not(x: Expr) -> Expr:
    """Whether it does not hold."""
    return ~_truth(x)


def _truth(x: Expr) -> Expr:
    return x if x.dtype.is_bool else x.not_equal(as_expr(0, x.dtype))
