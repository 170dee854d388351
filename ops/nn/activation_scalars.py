"""Activations and their gradients, element by element."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tensorlang.ir.intrinsics import intrinsic
from tensorlang.ir.nodes import Select, as_expr

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Expr


def relu(x: Expr) -> Expr:
    """max(x, 0), NaN staying NaN."""
    return Select(x < 0.0, as_expr(0.0).cast(x.dtype), x)


def gelu(x: Expr, *, approximate: str) -> Expr:
    """`x` times its normal distribution function, or the approximation by tanh."""
    if approximate == "none":
        return x * 0.5 * (intrinsic("erf", x * math.sqrt(0.5)) + 1.0)
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    return x * 0.5 * (intrinsic("tanh", inner) + 1.0)
