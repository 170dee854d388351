"""`where`: one of two values by a condition, and its gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tensorlang.errors import ArgumentError
from tensorlang.ops.elementwise import elementwise
from tensorlang.ops.fronts import ANY
from tensorlang.ops.gradients import gradient
from tensorlang.ops.operands import PYTHON, mixed

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch
    from tensorlang.ops.tensors import Operand

_HERE: Final = "tensorlang.ops.math.selection_scalars"


@elementwise(
    "math.where",
    f"{_HERE}:where",
    operands=("cond", "a", "b"),
    condition=0,
    allowed=ANY,
    aliases=("where",),
)
def where(
    cond: Any, a: Operand, b: Operand, *, target: Any = None, out: Any = None
) -> Launch:
    """The element of `a` where `cond` holds, else that of `b`.

    Args:
        cond: An array of bool.
        a: An array of any type, or a Python number.
        b: The same; all shapes broadcast.
        target: Where to compute.
        out: Where the result goes.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    _an_array_beside("math.where", a, b)
    return mixed(where, (cond, a, b), target, out)


@gradient(
    "math.where_grad",
    f"{_HERE}:where_grad",
    operands=("cond", "a", "b"),
    condition=0,
    aliases=("where_grad",),
)
def where_grad(
    dy: Any, cond: Any, a: Operand, b: Operand, *, target: Any = None, out: Any = None
) -> Launch:
    """The gradients of `math.where` for `a` and `b`: dy where each was chosen, else 0.

    They have the shapes of `a` and `b`: what was broadcast is summed over. Where one of
    these is a number, there is the other one's gradient only.

    Args:
        dy: The gradient of the result, in its shape.
        cond: The condition of `math.where`.
        a: Floats, or a Python number.
        b: The same.
        target: Where to compute.
        out: Where the results go: a tuple, or an array where there is one.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    _an_array_beside("math.where_grad", a, b)
    return mixed(where_grad, (dy, cond, a, b), target, out)


def _an_array_beside(id: str, a: Operand, b: Operand) -> None:
    """Refuse two numbers: nothing says what type they are of."""
    if type(a) in PYTHON and type(b) in PYTHON:
        raise ArgumentError(
            f"{id}: one of a and b has to be an array, whose type the other one takes; "
            f"{a!r} and {b!r} are numbers"
        )
