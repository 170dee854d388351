"""`clip`: values between bounds, and its gradients."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from tensorlang.errors import ArgumentError
from tensorlang.ops.dispatch import own
from tensorlang.ops.elementwise import elementwise
from tensorlang.ops.fronts import REALS
from tensorlang.ops.gradients import gradient
from tensorlang.ops.operands import mixed, type_of

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch
    from tensorlang.ops.tensors import Operand

_HERE: Final = "tensorlang.ops.math.selection_scalars"


@elementwise(
    "math.clip",
    f"{_HERE}:clip",
    operands=("x", "low", "high"),
    allowed=REALS,
    aliases=("clip",),
)
def clip(
    x: Any,
    low: Operand | None = None,
    high: Operand | None = None,
    *,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The element, but no less than `low`, and then no more than `high`; NaN stays.

    Args:
        x: Numbers of any shape.
        low: A Python number, an array of `x`'s type that broadcasts, or None.
        high: The same.
        target: Where to compute.
        out: Where the result goes.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    bounds = _bounds("math.clip", x, low, high)
    return mixed(clip, (x, *bounds), target, out)


@gradient(
    "math.clip_grad",
    f"{_HERE}:clip_grad",
    operands=("x", "low", "high"),
    aliases=("clip_grad",),
)
def clip_grad(
    dy: Any,
    x: Any,
    low: Operand | None = None,
    high: Operand | None = None,
    *,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The gradients of `math.clip` for `x`, and for the bounds that are arrays.

    They have the shapes of these arrays: what was broadcast is summed over.

    Args:
        dy: The gradient of the result, in its shape.
        x: What was clipped; floats.
        low: As for `math.clip`.
        high: As for `math.clip`.
        target: Where to compute.
        out: Where the results go: an array, or a tuple where bounds are arrays.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    bounds = _bounds("math.clip_grad", x, low, high)
    return mixed(clip_grad, (dy, x, *bounds), target, out)


def _bounds(id: str, x: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """The bounds, with the type's own where one is left away."""
    if low is not None and high is not None:
        return low, high
    if low is None and high is None:
        raise ArgumentError(f"{id}: give a lower bound, an upper one, or both")
    own(x, low, high)
    least, most = _limits(*type_of(id, x))
    return least if low is None else low, most if high is None else high


def _limits(kind: str, name: str) -> tuple[float, float]:
    """What no value of a type is below, and what none is above."""
    from tensorlang.ir.dtypes import DType  # noqa: PLC0415 - for integers only

    return (-math.inf, math.inf) if kind == "float" else DType(name).limits
