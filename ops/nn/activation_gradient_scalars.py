"""Gradients of the activations: what they are for an element."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tensorlang.ir import intrinsics
from tensorlang.ir.nodes import Select, as_expr

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Expr


def relu(dy: Expr, x: Expr) -> Expr:
    """Of max(x, 0): 0 at 0, and dy at NaN, as in PyTorch."""
    return Select(x <= 0.0, as_expr(0.0, dy.dtype), dy)


def leaky_relu(dy: Expr, x: Expr, *, negative_slope: Expr) -> Expr:
    """Of leaky_relu: the slope at 0."""
    return Select(x > 0.0, dy, dy * negative_slope)


def sigmoid(dy: Expr, x: Expr) -> Expr:
    """Of the sigmoid."""
    value = intrinsics.sigmoid(x)
    return dy * (value * (1.0 - value))


def silu(dy: Expr, x: Expr) -> Expr:
    """Of x times its sigmoid."""
    value = intrinsics.sigmoid(x)
    return dy * (value * (x * (1.0 - value) + 1.0))


def tanh(dy: Expr, x: Expr) -> Expr:
    """Of the hyperbolic tangent."""
    value = intrinsics.tanh(x)
    return dy * (1.0 - value * value)


def gelu(dy: Expr, x: Expr, *, approximate: str) -> Expr:
    """Of gelu, or of its approximation."""
    return dy * (_normal(x) if approximate == "none" else _by_tanh(x))


def _normal(x: Expr) -> Expr:
    """The normal distribution function, and x times its density."""
    below = 0.5 * (intrinsics.erf(x * math.sqrt(0.5)) + 1.0)
    density = intrinsics.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
    return below + x * density


def _by_tanh(x: Expr) -> Expr:
    """The derivative of x/2 (1 + tanh(u)), with u = c (x + k x^3)."""
    c, k = math.sqrt(2 / math.pi), 0.044715
    value = intrinsics.tanh(c * (x + k * x * x * x))
    slope = c * (1.0 + 3 * k * (x * x))
    return 0.5 * (1.0 + value) + 0.5 * x * ((1.0 - value * value) * slope)


def softplus(dy: Expr, x: Expr, *, beta: Expr, threshold: Expr) -> Expr:
    """Of softplus: dy above the threshold."""
    steep = x * beta
    return Select(steep > threshold, dy, dy * intrinsics.sigmoid(steep))
