"""The gradients of folds along axes, for the gradient of what they gave."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.ops.binding import number
from tensorlang.ops.dispatch import own
from tensorlang.ops.math.folding import (
    axes_of,
    grad_launch,
    grad_names,
    grad_plan,
    spread_plan,
)
from tensorlang.ops.tensors import TensorOperator, dimension_names, tensor_operator

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch
    from tensorlang.ops.tensors import Ints

_HERE: Final = "tensorlang.ops.math.reduction_gradient_definitions"
_DOC: Final = """The gradient of `math.{of}` at `x`: {says}.

Args:
    dy: The gradient of the result, in its shape.
    x: What `math.{of}` was applied to.
    axis: As for `math.{of}`.
    keepdims: As for `math.{of}`.
    target: Where to compute.
    out: Where the result goes.

Raises:
    DTypeError, ShapeError, ArgumentError: an argument does not fit.
"""
_USUAL: Final = ((512,), (512, 4096))


def _gradient(of: str, says: str) -> TensorOperator:
    """The gradient of a fold without arguments of its own."""

    def front(
        dy: Any,
        x: Any,
        axis: Ints | None = None,
        keepdims: bool = False,
        *,
        target: Any = None,
        out: Any = None,
    ) -> Launch:
        return grad_launch(made, (dy, x), axis, keepdims, (), target, out)

    made = _declared(of, front, says)
    return made


def _declared(of: str, front: Any, says: str, **scalars: float) -> TensorOperator:
    front.__name__ = front.__qualname__ = f"{of}_grad"
    front.__module__ = __name__
    front.__doc__ = _DOC.format(of=of, says=says)
    spread = of in ("sum", "mean")
    id = f"math.{of}_grad"
    return tensor_operator(
        id,
        f"{_HERE}:{of}_grad",
        plan=partial(_spread if spread else _folded, id),
        names=dimension_names if spread else grad_names,
        shapes=_USUAL,
        scalars=scalars,
        aliases=(f"{of}_grad",),
        scheduled_as="" if spread else "rows",
    )(front)


def _spread(id: str, *given: Any) -> Any:
    shapes, dtypes, asked = given
    return spread_plan(id, shapes, dtypes, _rows_by_default(shapes, asked))


def _folded(id: str, *given: Any) -> Any:
    shapes, dtypes, asked = given
    return grad_plan(id, shapes, dtypes, _rows_by_default(shapes, asked))


def _rows_by_default(shapes: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """Without an axis, as in the default workload: the one that dy has not."""
    if "axis" in asked or not shapes[0]:
        return asked
    return asked | {"axis": -1}


sum_grad = _gradient("sum", "dy for each element")
max_grad = _gradient("max", "dy, shared by all that are the largest")
min_grad = _gradient("min", "dy, shared by all that are the smallest")
logsumexp_grad = _gradient("logsumexp", "dy times the softmax of x")


def _mean_front(
    dy: Any,
    x: Any,
    axis: Ints | None = None,
    keepdims: bool = False,
    *,
    target: Any = None,
    out: Any = None,
) -> Launch:
    if type(x) is not np.ndarray:
        own(x)  # whose sizes may have names
    shape = getattr(x, "shape", ())
    given = tuple(axis) if isinstance(axis, list) else axis
    axes = axes_of("math.mean_grad", given, len(shape))
    share = 1.0 / (math.prod(shape[at] for at in axes) or 1)
    return grad_launch(mean_grad, (dy, x), axis, keepdims, (share,), target, out)


mean_grad = _declared("mean", _mean_front, "dy / n for each element", share=0.5)


@tensor_operator(
    "math.var_grad",
    f"{_HERE}:var_grad",
    plan=partial(_folded, "math.var_grad"),
    names=grad_names,
    shapes=_USUAL,
    scalars={"correction": 0.0},
    aliases=("var_grad",),
    scheduled_as="rows",
)
def var_grad(
    dy: Any,
    x: Any,
    axis: Ints | None = None,
    correction: float = 0.0,
    *,
    keepdims: bool = False,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The gradient of `math.var` at `x`: `2 dy (x - mean) / (n - correction)`.

    Args:
        dy: The gradient of the result, in its shape.
        x: What `math.var` was applied to.
        axis: As for `math.var`.
        correction: As for `math.var`.
        keepdims: As for `math.var`.
        target: Where to compute.
        out: Where the result goes.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    less = (number("math.var_grad", "correction", correction),)
    return grad_launch(var_grad, (dy, x), axis, keepdims, less, target, out)
