"""Activations: what they do to an element."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tensorlang.ir.intrinsics import erf, exp, log1p, sigmoid, tanh
from tensorlang.ir.nodes import Select, as_expr

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Expr

__all__ = ["gelu", "leaky_relu", "relu", "sigmoid", "silu", "softplus", "tanh"]


def relu(x: Expr) -> Expr:
    """max(x, 0), NaN staying NaN."""
    return Select(x < 0.0, as_expr(0.0, x.dtype), x)


def leaky_relu(x: Expr, *, negative_slope: Expr) -> Expr:
    """The element above 0, else a part of it."""
    return Select(x > 0.0, x, x * negative_slope)


def silu(x: Expr) -> Expr:
    """`x` times its sigmoid."""
    return x * sigmoid(x)


def gelu(x: Expr, *, approximate: str) -> Expr:
    """`x` times its normal distribution function, or the approximation by tanh."""
    if approximate == "none":
        return x * 0.5 * (erf(x * math.sqrt(0.5)) + 1.0)
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    return x * 0.5 * (tanh(inner) + 1.0)


def softplus(x: Expr, *, beta: Expr, threshold: Expr) -> Expr:
    """log(1 + exp(beta x)) / beta below the threshold, else x."""
    steep = x * beta
    return Select(steep > threshold, x, log1p(exp(steep)) / beta)
