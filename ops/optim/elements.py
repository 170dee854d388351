"""Expressions shared by the optimizers.

Values that depend on hyperparameters alone, such as 1 - beta, are computed on the host
in f64 and passed as scalars: in f32, 1 - 0.999 has a relative error of 5e-5.
"""

from __future__ import annotations

from tensorlang import ir
from tensorlang.ops.spec.signature import Float, Scalar


def decayed(grad: Float, param: Float, decay: Scalar) -> ir.Expr:
    """The gradient plus that of the L2 penalty, if `decay` is not 0."""
    none = ir.as_expr(decay).equal(0.0)
    return ir.named("g", ir.select(none, grad, grad + decay * param), always=False)


def largest(new: Float, old: Float) -> ir.Expr:
    """The maximum, which propagates NaN."""
    return ir.select((new > old) | ir.isnan(new), new, old)
