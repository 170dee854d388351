"""Functions of one array: what they do to an element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorlang.ir.intrinsics import (
    ceil,
    cos,
    erf,
    exp,
    expm1,
    floor,
    log,
    log1p,
    sin,
    sqrt,
    tanh,
)
from tensorlang.ir.nodes import Select, Unary, as_expr

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Expr

__all__ = [
    "absolute",
    "ceil",
    "cos",
    "erf",
    "exp",
    "expm1",
    "floor",
    "log",
    "log1p",
    "negative",
    "reciprocal",
    "rsqrt",
    "sign",
    "sin",
    "sqrt",
    "square",
    "tanh",
]


def negative(x: Expr) -> Expr:
    """The element with the other sign."""
    return -x


def absolute(x: Expr) -> Expr:
    """The size; of an unsigned integer, itself."""
    return x if x.dtype.kind == "uint" else Unary("abs", x)


def sign(x: Expr) -> Expr:
    """1 above 0, -1 below, else 0: at NaN, too, as in PyTorch."""
    one, zero = as_expr(1, x.dtype), as_expr(0, x.dtype)
    rest = zero if x.dtype.kind == "uint" else Select(x < zero, -one, zero)
    return Select(x > zero, one, rest)


def square(x: Expr) -> Expr:
    """The element times itself."""
    return x * x


def rsqrt(x: Expr) -> Expr:
    """1 over the square root."""
    return 1.0 / sqrt(x)


def reciprocal(x: Expr) -> Expr:
    """1 over the element."""
    return 1.0 / x
