"""The mean squared error and its gradient."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.ops.dispatch import own
from tensorlang.ops.elementwise import (
    broadcast,
    check_types,
    collapse,
    dimension_names,
    same,
    static,
    usual_scalars,
)
from tensorlang.ops.operands import mixed
from tensorlang.ops.tensors import Plan, Shape, call, tensor_operator

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch
    from tensorlang.ops.tensors import Names
    from tensorlang.workload import Workload

_HERE: Final = "tensorlang.ops.nn.mse_definitions"
_LONG: Final = 1 << 24
_OPERANDS: Final = ("prediction", "truth")
REDUCTIONS: Final = ("mean", "sum", "none")


def _checked(id: str, reduction: Any) -> str:
    """The reduction.

    Raises:
        ArgumentError: there is none of that name.
    """
    if reduction not in REDUCTIONS:
        raise ArgumentError(
            f"{id}: reduction is 'mean', 'sum' or 'none', not {reduction!r}"
        )
    return str(reduction)


def _plan(
    shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: dict[str, Any]
) -> Plan:
    check_types("nn.mse", dtypes, None)
    shape = same("nn.mse", _OPERANDS, shapes)
    result = shape if asked["reduction"] == "none" else ()
    return Plan(collapse(shapes, shape), dtypes, (result,), asked)


def _flat(workload: Workload) -> Names:
    """One symbolic dimension: all elements."""
    return (("n0",),) * len(workload.shapes)


@tensor_operator(
    "nn.mse",
    f"{_HERE}:mse",
    plan=_plan,
    names=_flat,
    shapes=((_LONG,),) * 2,
    attributes={"reduction": "mean"},
    aliases=("mse",),
)
def mse(
    prediction: Any,
    truth: Any,
    reduction: str = "mean",
    *,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The squared differences, folded.

    Args:
        prediction: Floats of any shape.
        truth: What they should be, in the same shape.
        reduction: `mean`, `sum`, or `none` for all of them.
        target: Where to compute.
        out: Where the result goes.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    how = {"reduction": _checked("nn.mse", reduction)}
    return call(mse, (prediction, truth), how, (), target, out)


def _plan_grad(
    shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: dict[str, Any]
) -> Plan:
    id, given = "nn.mse_grad", asked.get("reduction", "mean")
    check_types(id, dtypes, None)
    shape = same(id, _OPERANDS, shapes[-2:])
    if len(shapes) > 2:
        fits = shapes[0] == shape if given == "none" else math.prod(shapes[0]) == 1
        if not fits:
            wanted = shape if given == "none" else ()
            raise ShapeError(f"{id}: dy has shape {shapes[0]}, nn.mse gives {wanted}")
    rest = static({k: v for k, v in asked.items() if k != "reduction"})
    return Plan(collapse(shapes, broadcast(id, shapes)), dtypes, (shape,), rest)


@tensor_operator(
    "nn.mse_grad",
    f"{_HERE}:mse_grad",
    plan=_plan_grad,
    names=dimension_names,
    shapes=((), (_LONG,), (_LONG,)),
    attributes={"reduction": "mean"},
    scalars=usual_scalars(("dy", *_OPERANDS), {"scale": 2.0}),
    aliases=("mse_grad",),
)
def mse_grad(
    dy: Any,
    prediction: Any,
    truth: Any,
    reduction: str = "mean",
    *,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The gradient of `nn.mse` for the prediction; that for the truth is its negative.

    Args:
        dy: The gradient of the result: a Python number, an array of shape (), or with
            `none` one of the prediction's shape.
        prediction: As for `nn.mse`.
        truth: As for `nn.mse`.
        reduction: As for `nn.mse`.
        target: Where to compute.
        out: Where the result goes; may be `prediction` or `truth`.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    how = _checked("nn.mse_grad", reduction)
    own(dy, prediction, truth)
    counts = (math.prod(getattr(of, "shape", ())) for of in (prediction, truth))
    scale = 2.0 / max(1, *counts) if how == "mean" else 2.0
    given = {"reduction": how}
    return mixed(mse_grad, (dy, prediction, truth), target, out, given, (scale,))
