"""Softmax and its logarithm along an axis, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tensorlang.ops.rows import along, one_axis, row_names
from tensorlang.ops.tensors import TensorOperator, call, tensor_operator

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch

_HERE: Final = "tensorlang.ops.nn.softmax_definitions"


def _operator(
    name: str, arrays: int = 1
) -> Callable[[Callable[..., Launch]], TensorOperator]:
    return tensor_operator(
        f"nn.{name}",
        f"{_HERE}:{name}",
        plan=partial(along, f"nn.{name}"),
        names=row_names,
        shapes=((512, 4096),) * arrays,
        aliases=(name,),
        scheduled_as="rows",
    )


@_operator("softmax")
def softmax(x: Any, axis: int = -1, *, target: Any = None, out: Any = None) -> Launch:
    """exp(x) over its sum along an axis.

    Args:
        x: Floats of any shape; a number is a row of one.
        axis: The axis whose elements sum to 1.
        target: Where to compute.
        out: Where the result goes; may be `x`.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    given = {"axis": one_axis("nn.softmax", axis)}
    return call(softmax, (x,), given, (), target, out)


@_operator("softmax_grad", 2)
def softmax_grad(
    dy: Any, x: Any, axis: int = -1, *, target: Any = None, out: Any = None
) -> Launch:
    """The gradient of `nn.softmax`, which is computed again: `y (dy - sum(y dy))`.

    Args:
        dy: The gradient of the result.
        x: As for `nn.softmax`.
        axis: As for `nn.softmax`.
        target: Where to compute.
        out: Where the result goes; may be `dy` or `x`.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    given = {"axis": one_axis("nn.softmax_grad", axis)}
    return call(softmax_grad, (dy, x), given, (), target, out)


@_operator("log_softmax")
def log_softmax(
    x: Any, axis: int = -1, *, target: Any = None, out: Any = None
) -> Launch:
    """The logarithm of softmax: x less the logarithm of the sum of exp(x).

    Args:
        x: Floats of any shape; a number is a row of one.
        axis: The axis along which it sums.
        target: Where to compute.
        out: Where the result goes; may be `x`.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    given = {"axis": one_axis("nn.log_softmax", axis)}
    return call(log_softmax, (x,), given, (), target, out)


@_operator("log_softmax_grad", 2)
def log_softmax_grad(
    dy: Any, x: Any, axis: int = -1, *, target: Any = None, out: Any = None
) -> Launch:
    """The gradient of `nn.log_softmax`: `dy - softmax(x) sum(dy)`.

    Args:
        dy: The gradient of the result.
        x: As for `nn.log_softmax`.
        axis: As for `nn.log_softmax`.
        target: Where to compute.
        out: Where the result goes; may be `dy` or `x`.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    given = {"axis": one_axis("nn.log_softmax_grad", axis)}
    return call(log_softmax_grad, (dy, x), given, (), target, out)
