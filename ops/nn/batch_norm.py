"""Batch normalisation in training and after it, and the gradients.

Ioffe and Szegedy, "Batch normalization", 2015.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tensorlang.errors import DTypeError, ShapeError
from tensorlang.ops.binding import number
from tensorlang.ops.math.folding import is_long
from tensorlang.ops.rows import one_axis
from tensorlang.ops.tensors import (
    Plan,
    Shape,
    TensorOperator,
    axis_of,
    call,
    of_one_type,
    tensor_operator,
)

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch
    from tensorlang.ops.tensors import Names
    from tensorlang.workload import Workload

_HERE: Final = "tensorlang.ops.nn.batch_norm_definitions"
_NARROW: Final = ("bf16", "f16")
_ARRAYS: Final = ("dy", "x")
_USUAL: Final = (8, 64, 56, 56)
# the dimension of the channels: of images as [n, c, i], or of columns as [1, n, c]
_IMAGES, _COLUMNS = 1, 2


def _plan(
    id: str,
    takes: tuple[str, ...],
    shapes: tuple[Shape, ...],
    dtypes: tuple[str, ...],
    asked: dict[str, Any],
) -> Plan:
    names = str(asked.get("inputs") or "").split()
    names = names if len(names) == len(shapes) else list(takes[: len(shapes)])
    given = dict(zip(names, shapes, strict=True))
    x = given["x"]
    at = axis_of(id, asked.get("axis", 1), len(x))
    channels = (x[at],)
    for name, shape in given.items():
        wanted = x if name in _ARRAYS else channels
        if shape != wanted:
            raise ShapeError(
                f"{id}: {name} has shape {shape}; for x of shape {x} with its channels "
                f"along axis {at} it is {wanted}"
            )
    before, behind = math.prod(x[:at]), math.prod(x[at + 1 :])
    if "train" in id and before * behind == 1:
        raise ShapeError(
            f"{id}: x of shape {x} has one value a channel, which has no variance"
        )
    _check_types(id, dict(zip(names, dtypes, strict=True)))
    dim = _COLUMNS if behind == 1 else _IMAGES
    laid = (1, before, x[at]) if dim == _COLUMNS else (before, x[at], behind)
    canonical = tuple(laid if name in _ARRAYS else channels for name in names)
    rest = {
        "inputs": " ".join(names),
        "dim": dim,
        "long": dim == _COLUMNS and is_long(laid),
    }
    return Plan(canonical, dtypes, _results(id, x, channels, names), rest)


def _results(id: str, x: Shape, channels: Shape, names: list[str]) -> tuple[Shape, ...]:
    if id.endswith("_grad"):
        return (x, channels, channels) if "weight" in names else (x,)
    return (x, channels, channels) if "train" in id else (x,)


def _check_types(id: str, kinds: dict[str, str]) -> None:
    """Whether all have the type of x; by channel it may be f32 beside f16 and bf16.

    Raises:
        DTypeError: they have not.
    """
    arrays = of_one_type(id, tuple(k for name, k in kinds.items() if name in _ARRAYS))
    others = {kind for name, kind in kinds.items() if name not in _ARRAYS}
    if others <= {arrays} or (others == {"f32"} and arrays in _NARROW):
        return
    shown = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    raise DTypeError(
        f"{id}: all arrays have one type, or those by channel are f32 beside f16 or "
        f"bf16; got {shown}"
    )


def _names(workload: Workload) -> Names:
    """How many images or columns there are is symbolic."""
    dim = workload.named["dim"]
    array = ("m", None, None) if dim == _IMAGES else (None, "n", None)
    return tuple(array if len(shape) == 3 else (None,) for shape in workload.shapes)


def _operator(
    name: str, takes: tuple[str, ...], **scalars: float
) -> Callable[[Callable[..., Launch]], TensorOperator]:
    return tensor_operator(
        f"nn.{name}",
        f"{_HERE}:{name}",
        plan=partial(_plan, f"nn.{name}", takes),
        names=_names,
        shapes=tuple(_USUAL if each in _ARRAYS else _USUAL[1:2] for each in takes),
        attributes={"inputs": " ".join(takes)},
        scalars=scalars,
        aliases=(name,),
        scheduled_as="rows",
    )


def _launch(  # noqa: PLR0917 - as `call`
    op: TensorOperator,
    arrays: dict[str, Any],
    axis: Any,
    scalars: dict[str, Any],
    target: Any,
    out: Any,
) -> Launch:
    """The launch of a call with those of the arrays that are there."""
    given = {name: array for name, array in arrays.items() if array is not None}
    how = {"inputs": " ".join(given), "axis": one_axis(op.id, axis)}
    numbers = tuple(number(op.id, name, value) for name, value in scalars.items())
    return call(op, tuple(given.values()), how, numbers, target, out)


@_operator("batch_norm", ("x", "mean", "var", "weight", "bias"), eps=1e-5)
def batch_norm(
    x: Any,
    mean: Any,
    var: Any,
    weight: Any = None,
    bias: Any = None,
    *,
    eps: float = 1e-5,
    axis: int = 1,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """(x - mean) / sqrt(var + eps) * weight + bias for each channel, as after training.

    Args:
        x: Floats of two dimensions or more.
        mean: Of each channel.
        var: Of each channel.
        weight: Of each channel.
        bias: Of each channel.
        eps: Added to the variance.
        axis: The axis of the channels.
        target: Where to compute.
        out: Where the result goes; may be `x`.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    arrays = {"x": x, "mean": mean, "var": var, "weight": weight, "bias": bias}
    return _launch(batch_norm, arrays, axis, {"eps": eps}, target, out)


@_operator(
    "batch_norm_train",
    ("x", "running_mean", "running_var", "weight", "bias"),
    momentum=0.1,
    eps=1e-5,
)
def batch_norm_train(
    x: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    *,
    momentum: float = 0.1,
    eps: float = 1e-5,
    axis: int = 1,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The same with the moments of the batch, and the running moments' next values.

    These are `(1 - momentum) running + momentum own`, where the batch's own variance is
    the unbiased one.

    Args:
        x: Floats of two dimensions or more, with more than one value a channel.
        running_mean: Of each channel.
        running_var: Of each channel.
        weight: Of each channel.
        bias: Of each channel.
        momentum: How far the running moments move.
        eps: Added to the variance.
        axis: The axis of the channels.
        target: Where to compute.
        out: Where the three results go: y, mean and variance; the latter two may be
            `running_mean` and `running_var`.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    arrays = {
        "x": x,
        "running_mean": running_mean,
        "running_var": running_var,
        "weight": weight,
        "bias": bias,
    }
    numbers = {"momentum": momentum, "eps": eps}
    return _launch(batch_norm_train, arrays, axis, numbers, target, out)


@_operator("batch_norm_grad", ("dy", "x", "mean", "var", "weight"), eps=1e-5)
def batch_norm_grad(
    dy: Any,
    x: Any,
    mean: Any,
    var: Any,
    weight: Any = None,
    *,
    eps: float = 1e-5,
    axis: int = 1,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The gradients of `nn.batch_norm` for x, weight and bias.

    Args:
        dy: The gradient of the result.
        x: As for `nn.batch_norm`.
        mean: As for `nn.batch_norm`.
        var: As for `nn.batch_norm`.
        weight: As for `nn.batch_norm`; without it there is the gradient for x only.
        eps: As for `nn.batch_norm`.
        axis: As for `nn.batch_norm`.
        target: Where to compute.
        out: Where the results go: three arrays, or one.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    arrays = {"dy": dy, "x": x, "mean": mean, "var": var, "weight": weight}
    return _launch(batch_norm_grad, arrays, axis, {"eps": eps}, target, out)


@_operator("batch_norm_train_grad", ("dy", "x", "weight"), eps=1e-5)
def batch_norm_train_grad(
    dy: Any,
    x: Any,
    weight: Any = None,
    *,
    eps: float = 1e-5,
    axis: int = 1,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The gradients of `nn.batch_norm_train` for x, weight and bias, from that of y.

    Args:
        dy: The gradient of y.
        x: As for `nn.batch_norm_train`.
        weight: As for `nn.batch_norm_train`; without it there is the gradient for x
            only.
        eps: As for `nn.batch_norm_train`.
        axis: As for `nn.batch_norm_train`.
        target: Where to compute.
        out: Where the results go: three arrays, or one.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    arrays = {"dy": dy, "x": x, "weight": weight}
    return _launch(batch_norm_train_grad, arrays, axis, {"eps": eps}, target, out)
