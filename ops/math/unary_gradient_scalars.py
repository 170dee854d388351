"""Gradients of the functions of one array: what they do to an element."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tensorlang.ir import intrinsics
from tensorlang.ir.nodes import as_expr
from tensorlang.ops.math.unary_scalars import sign

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Expr


def nothing(dy: Expr, x: Expr) -> Expr:
    """0: the function is constant nearly everywhere."""
    del x
    return as_expr(0.0, dy.dtype)


def negative(dy: Expr, x: Expr) -> Expr:
    """-dy."""
    del x
    return -dy


def absolute(dy: Expr, x: Expr) -> Expr:
    """Of the size: `dy` times the sign."""
    return dy * sign(x)


def square(dy: Expr, x: Expr) -> Expr:
    """Of x * x."""
    return dy * (x * 2.0)


def exp(dy: Expr, x: Expr) -> Expr:
    """Of the power of e, and of that less 1."""
    return dy * intrinsics.exp(x)


def log(dy: Expr, x: Expr) -> Expr:
    """Of the logarithm."""
    return dy / x


def log1p(dy: Expr, x: Expr) -> Expr:
    """Of log(1 + x)."""
    return dy / (x + 1.0)


def sqrt(dy: Expr, x: Expr) -> Expr:
    """Of the square root."""
    return dy / (intrinsics.sqrt(x) * 2.0)


def rsqrt(dy: Expr, x: Expr) -> Expr:
    """Of 1 / sqrt(x), by its cube."""
    root = 1.0 / intrinsics.sqrt(x)
    return dy * (root * root * root) * -0.5


def reciprocal(dy: Expr, x: Expr) -> Expr:
    """Of 1 / x, by its square."""
    inverse = 1.0 / x
    return -dy * (inverse * inverse)


def erf(dy: Expr, x: Expr) -> Expr:
    """Of the error function."""
    return dy * (intrinsics.exp(-(x * x)) * (2 / math.sqrt(math.pi)))


def sin(dy: Expr, x: Expr) -> Expr:
    """Of the sine."""
    return dy * intrinsics.cos(x)


def cos(dy: Expr, x: Expr) -> Expr:
    """Of the cosine."""
    return -dy * intrinsics.sin(x)


def tanh(dy: Expr, x: Expr) -> Expr:
    """Of the hyperbolic tangent."""
    value = intrinsics.tanh(x)
    return dy * (1.0 - value * value)
