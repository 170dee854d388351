"""Padding arrays and joining them; their gradients take the parts back out."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.errors import ArgumentError
from tensorlang.ops.binding import number_of, type_of
from tensorlang.ops.dispatch import own
from tensorlang.ops.nn.joining_plans import (
    cropped,
    joined,
    joined_names,
    padded,
    padded_names,
    parted,
    parted_names,
)
from tensorlang.ops.nn.movement_plans import ANY, INTEGERS
from tensorlang.ops.tensors import call, tensor_operator

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch
    from tensorlang.workload import Workload

_HERE: Final = "tensorlang.ops.nn.joining_definitions"
_WHOLE: Final = (int, np.integer)
_ONE_AROUND: Final = (0, 0, 0, 0, 1, 1, 1, 1)


def _usual(workload: Workload) -> dict[str, Any]:
    """A value to pad with; its kind decides the type of the kernel's scalar."""
    return {"value": 0 if workload.dtypes[0] in INTEGERS else 0.0}


@tensor_operator(
    "nn.pad",
    f"{_HERE}:pad",
    plan=padded,
    names=padded_names,
    shapes=((64, 64, 56, 56),),
    attributes={"padding": _ONE_AROUND},
    scalars=_usual,
    allowed=ANY,
    aliases=("pad",),
)
def pad(
    x: Any,
    padding: Sequence[tuple[int, int]],
    value: float | None = None,
    *,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The array with a constant around it.

    Args:
        x: An array of any type and shape.
        padding: For each dimension, how many elements come before and behind; a pair.
        value: The constant, of the kind that `x` has; 0 where it is left out.
        target: Where to compute.
        out: Where the result goes.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    if type(x) is not np.ndarray:
        own(x)
    kind, name = type_of("nn.pad", x)
    number = 0 if value is None else number_of("nn.pad", "value", value, kind, name)
    if kind in ("bool", "float"):  # kernels take no truths
        number = float(number)
    asked = {"padding": _pairs("nn.pad", padding)}
    return call(pad, (x,), asked, (number,), target, out)


@tensor_operator(
    "nn.pad_grad",
    f"{_HERE}:crop",
    plan=cropped,
    names=padded_names,
    shapes=((64, 64, 58, 58),),
    attributes={"padding": _ONE_AROUND},
    allowed=ANY,
    aliases=("pad_grad",),
)
def pad_grad(
    dy: Any,
    x: Any,
    padding: Sequence[tuple[int, int]],
    value: float | None = None,
    *,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The gradient of `pad`: what lies inside of the padding.

    Args:
        dy: The gradient of the result.
        x: What was padded; only its shape counts.
        padding: As in the forward call.
        value: As in the forward call; it does not matter.
        target: Where to compute.
        out: Where the result goes.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    del value
    if type(dy) is not np.ndarray or type(x) is not np.ndarray:
        own(dy, x)
    asked = {"padding": _pairs("nn.pad_grad", padding), "inside": tuple(x.shape)}
    return call(pad_grad, (dy,), asked, (), target, out)


@tensor_operator(
    "nn.concatenate",
    f"{_HERE}:concatenate",
    plan=joined,
    names=joined_names,
    shapes=((64, 64, 28, 28), (64, 32, 28, 28)),
    attributes={"axis": 1},
    allowed=ANY,
    aliases=("concatenate",),
)
def concatenate(
    arrays: Sequence[Any], axis: int = 0, *, target: Any = None, out: Any = None
) -> Launch:
    """Arrays one behind the other.

    Args:
        arrays: One or more, of one type, and of one shape but along the axis.
        axis: The dimension along which they follow each other.
        target: Where to compute.
        out: Where the result goes.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    given = several("nn.concatenate", arrays)
    return call(concatenate, given, {"axis": axis}, (), target, out)


@tensor_operator(
    "nn.concatenate_grad",
    f"{_HERE}:split",
    plan=parted,
    names=parted_names,
    shapes=((1 << 20, 8),),
    attributes={"axis": 1, "sizes": (4, 4)},
    allowed=ANY,
    aliases=("concatenate_grad",),
)
def concatenate_grad(
    dy: Any,
    arrays: Sequence[Any],
    axis: int = 0,
    *,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The gradients of `concatenate`: a part of `dy` for each of the arrays.

    Args:
        dy: The gradient of the result.
        arrays: What was joined; only their shapes count.
        axis: As in the forward call.
        target: Where to compute.
        out: Where the results go: a tuple, or an array where there is one.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    id = "nn.concatenate_grad"
    given = several(id, arrays)
    if any(type(array) is not np.ndarray for array in (dy, *given)):
        own(dy, *given)
    asked = {"axis": axis, "parts": tuple([tuple(array.shape) for array in given])}
    return call(concatenate_grad, (dy,), asked, (), target, out)


def several(id: str, arrays: Any) -> tuple[Any, ...]:
    """The arrays of a list.

    Raises:
        ArgumentError: it is none, or empty.
    """
    if isinstance(arrays, (list, tuple)) and arrays:
        return tuple(arrays)
    raise ArgumentError(
        f"{id} takes a list of arrays, at least one, not {arrays!r:.80}"
    )


def _pairs(id: str, padding: Any) -> tuple[int, ...]:
    """Pairs of numbers from 0 on, one after the other.

    Raises:
        ArgumentError: they are none.
    """
    try:
        return _flat_pairs(id, padding)
    except TypeError:  # a list cannot be remembered
        return _flat_pairs.__wrapped__(id, padding)


@lru_cache(maxsize=1024)
def _flat_pairs(id: str, padding: Any) -> tuple[int, ...]:
    made: tuple[Any, ...] = (None,)
    with suppress(TypeError, ValueError):
        made = tuple(n for low, high in padding for n in (low, high))
    if not all(isinstance(n, _WHOLE) and not isinstance(n, bool) for n in made):
        raise ArgumentError(
            f"{id}: padding is a pair of whole numbers for each dimension, such as "
            f"((0, 0), (1, 1)), not {padding!r}"
        )
    if min(made, default=0) < 0:
        raise ArgumentError(
            f"{id}: padding is from 0 on, not {padding!r}; a slice takes elements away"
        )
    return tuple(map(int, made))
