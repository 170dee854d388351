"""Choosing between values: what it does to their elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorlang.ir.nodes import Select, as_expr
from tensorlang.ops.math.binary_scalars import maximum, minimum

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Expr


def where(cond: Expr, a: Expr, b: Expr) -> Expr:
    """One of the two."""
    return Select(cond, a, b)


def where_grad(dy: Expr, cond: Expr, a: Expr, b: Expr) -> tuple[None, Expr, Expr]:
    """Dy for the one that was chosen."""
    del a, b
    zero = as_expr(0.0, dy.dtype)
    return None, Select(cond, dy, zero), Select(cond, zero, dy)


def clip(x: Expr, low: Expr, high: Expr) -> Expr:
    """The element between its bounds; the upper one has the last word."""
    return minimum(maximum(x, low), high)


def clip_grad(dy: Expr, x: Expr, low: Expr, high: Expr) -> tuple[Expr, Expr, Expr]:
    """Dy for the one that the result is: x where it is both bounds' equal, too."""
    zero = as_expr(0.0, dy.dtype)
    return (
        Select((x >= low) & (x <= high), dy, zero),
        Select((x < low) & (low < high), dy, zero),
        Select((x > high) | (high < low), dy, zero),
    )
