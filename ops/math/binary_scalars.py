"""Arithmetic on two operands: what it does to their elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorlang.ir.intrinsics import pow as real_power
from tensorlang.ir.nodes import Binary, Select
from tensorlang.ops.math import integer_scalars

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Expr


def add(a: Expr, b: Expr) -> Expr:
    """The sum; of truths, whether one holds."""
    return a | b if a.dtype.is_bool else a + b


def subtract(a: Expr, b: Expr) -> Expr:
    """The difference."""
    return a - b


def multiply(a: Expr, b: Expr) -> Expr:
    """The product; of truths, whether both hold."""
    return a & b if a.dtype.is_bool else a * b


def divide(a: Expr, b: Expr) -> Expr:
    """The quotient of floats."""
    return a / b


def maximum(a: Expr, b: Expr) -> Expr:
    """The larger one; NaN where one is."""
    if a.dtype.is_bool:
        return a | b
    if a.dtype.is_integer:
        return Binary("max", a, b)
    return Select((a > b) | a.not_equal(a), a, b)


def minimum(a: Expr, b: Expr) -> Expr:
    """The smaller one; NaN where one is."""
    if a.dtype.is_bool:
        return a & b
    if a.dtype.is_integer:
        return Binary("min", a, b)
    return Select((a < b) | a.not_equal(a), a, b)


def power(a: Expr, b: Expr) -> Expr:
    """The power, of floats or of integers."""
    return integer_scalars.power(a, b) if a.dtype.is_integer else real_power(a, b)
