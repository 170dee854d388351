"""Mean squared error and its gradient.

The gradient is written by hand: it takes numbers for arrays, and is that of one of the
operands, where a derived one is that of both.
"""

from __future__ import annotations

import math
from typing import Literal

from tensorlang import ir
from tensorlang.errors import ArgumentError
from tensorlang.ops.spec.definition import operator
from tensorlang.ops.spec.signature import Floats, Number

Reduction = Literal["mean", "sum", "none"]
_LONG = (1 << 24,)


@operator("nn.mse", shapes=(_LONG, _LONG))
def mse(prediction: Floats, truth: Floats, reduction: Reduction = "mean") -> ir.Tensor:
    """Mean squared error, `mean((prediction - truth) ** 2)`; NaN for empty arrays.

    Args:
        prediction: Floats of any shape.
        truth: Target values, of the same shape.
        reduction: `mean`, `sum`, or `none` for the squared error of each element.
    """
    _alike(prediction, truth)
    shape, dtype = prediction.shape, prediction.dtype
    n = ir.elements(shape)
    p, t = (ir.reshaped(x, (n,)) for x in (prediction, truth))

    def squared(i: ir.Expr) -> ir.Expr:
        difference = ir.wide(p[i]) - ir.wide(t[i])
        return difference * difference

    if reduction == "none":
        made = ir.compute((n,), lambda i: ir.stored(squared(i), dtype), "y")
        return ir.reshaped(made, shape)
    k = ir.reduce_axis(n, "k")
    total = ir.compute((), lambda: ir.sum(squared(k.var), k), "total")

    def folded() -> ir.Expr:
        whole = ir.select(n.equal(0), 0.0, total[()])
        share = whole / n.cast(whole.dtype) if reduction == "mean" else whole
        return ir.stored(share, dtype)

    return ir.compute((), folded, "y")


@operator("nn.mse_grad", shapes=((), _LONG, _LONG), gradient={"linear": False})
def mse_grad(
    dy: Floats | Number,
    prediction: Floats | Number,
    truth: Floats | Number,
    reduction: Reduction = "mean",
) -> ir.Tensor:
    """The gradient of `nn.mse` for the prediction; negate it for the truth.

    Args:
        dy: The gradient of the result: a Python number or an array of shape (); with
            reduction `none`, an array of the shape of `prediction`.
        prediction: As for `nn.mse`, or a Python number.
        truth: Likewise; at least one of the two is an array.
    """
    if isinstance(prediction, ir.Tensor) and isinstance(truth, ir.Tensor):
        _alike(prediction, truth)
    given = [x.shape for x in (prediction, truth) if isinstance(x, ir.Tensor)]
    ir.require(given, "prediction or truth has to be an array", ArgumentError)
    count = ir.as_expr(ir.elements(given[0]))
    if isinstance(dy, ir.Tensor):
        wanted = given[0] if reduction == "none" else ()
        ir.require(
            dy.shape == wanted or (not wanted and math.prod(dy.shape) == 1),
            f"dy has shape {dy.shape}, nn.mse gives {wanted}",
        )
        dy = ir.reshaped(dy, wanted)

    def element(dy: ir.Expr, p: ir.Expr, t: ir.Expr) -> ir.Expr:
        share = 2.0 / count.cast(p.dtype) if reduction == "mean" else 2.0
        return dy * ((p - t) * share)

    whole = ir.elementwise_tensors(element, ("dy", "prediction", "truth"))
    made: ir.Tensor = whole(dy=dy, prediction=prediction, truth=truth)
    return made


def _alike(prediction: Floats, truth: Floats) -> None:
    ir.require(
        prediction.shape == truth.shape,
        f"prediction has shape {prediction.shape}, truth has {truth.shape}; they must "
        "be the same",
    )
