"""The mean squared error and its gradient, as loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorlang.ir import compute, reduce_axis
from tensorlang.ir import sum as fold
from tensorlang.ir.nodes import Select, as_expr
from tensorlang.ops.assembling import stored, wide
from tensorlang.ops.lifting import lifted

if TYPE_CHECKING:
    from tensorlang.ir.frontend import Tensor
    from tensorlang.ir.nodes import Expr


def mse(prediction: Tensor, truth: Tensor, *, reduction: str) -> Any:
    """Squared differences, their sum, or their mean: NaN where there are none."""
    (n,) = prediction.shape
    k = reduce_axis(n, "k")

    def squared(i: Any) -> Expr:
        difference = wide(prediction[i]) - wide(truth[i])
        return difference * difference

    def folded() -> Expr:
        value = total[()]
        whole = Select(n.equal(0), as_expr(0.0, value.dtype), value)
        share = whole / n.cast(value.dtype) if reduction == "mean" else whole
        return stored(share, prediction.dtype)

    if reduction == "none":
        return compute((n,), lambda i: stored(squared(i), prediction.dtype), "y")
    total = compute((), lambda: fold(squared(k.var), k), "total")
    return compute((), folded, "y")


@lifted
def mse_grad(dy: Expr, prediction: Expr, truth: Expr, *, scale: Expr) -> Expr:
    """Of the squared difference, times its share in the result."""
    return dy * ((prediction - truth) * scale)
