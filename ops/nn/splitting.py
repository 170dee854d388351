"""Splitting an array into parts, and stacking arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.ops.binding import type_of
from tensorlang.ops.dispatch import own
from tensorlang.ops.nn.joining import several
from tensorlang.ops.nn.joining_plans import (
    divided,
    joined_names,
    parted_names,
    stacked,
)
from tensorlang.ops.nn.movement_plans import ANY
from tensorlang.ops.tensors import axis_of, call, tensor_operator

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch

_WHOLE: Final = (int, np.integer)


def whole(id: str, name: str, values: Any) -> tuple[int, ...]:
    """Whole numbers, or one, as a tuple."""
    given = (values,) if isinstance(values, _WHOLE) else values
    try:
        made = tuple(given)
    except TypeError:
        made = (None,)
    if not all(isinstance(v, _WHOLE) and not isinstance(v, bool) for v in made):
        raise ArgumentError(f"{id}: {name} is made of whole numbers, not {values!r}")
    return tuple(map(int, made))


_HERE: Final = "tensorlang.ops.nn.joining_definitions"
_THIRD: Final = 1024


@tensor_operator(
    "nn.split",
    f"{_HERE}:split",
    plan=divided,
    names=parted_names,
    shapes=((8192, 3 * _THIRD),),
    attributes={"axis": 1, "sizes": (_THIRD,) * 3},
    allowed=ANY,
)
def split(
    x: Any,
    parts: Sequence[int] | int,
    axis: int = 0,
    *,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """An array cut into parts along an axis, in one pass: a tuple of arrays.

    Args:
        x: An array of any type with one dimension or more.
        parts: How many equal parts; or the size of each part.
        axis: The dimension that is cut.
        target: Where to compute.
        out: Where the parts go: a tuple.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    if type(x) is not np.ndarray:
        own(x)
        type_of("nn.split", x)
    at = axis_of("nn.split", axis, len(x.shape))
    sizes = _sizes(parts, int(x.shape[at]))
    single = len(sizes) == 1
    given = out[0] if single and isinstance(out, (tuple, list)) else out
    launch = call(split, (x,), {"axis": at, "sizes": sizes}, (), target, given)
    return (*launch[:2], (launch[2],)) if single else launch


def _sizes(parts: Sequence[int] | int, extent: int) -> tuple[int, ...]:
    """The size of each part.

    Raises:
        ArgumentError, ShapeError: there are none, or they are not equal.
    """
    if isinstance(parts, (int, np.integer)) and not isinstance(parts, bool):
        count = int(parts)
        if count < 1:
            raise ArgumentError(f"nn.split: there is one part at least, not {count}")
        if extent % count:
            raise ShapeError(
                f"nn.split: {extent} places are not {count} equal parts; give the "
                "size of each"
            )
        return (extent // count,) * count
    sizes = whole("nn.split", "parts", parts)
    if not sizes or min(sizes) < 0:
        raise ArgumentError(
            f"nn.split: parts are a number, or sizes from 0 on, not {parts!r:.80}"
        )
    return sizes


@tensor_operator(
    "nn.stack",
    f"{_HERE}:concatenate",
    plan=stacked,
    names=joined_names,
    shapes=((64, 512), (64, 512)),
    attributes={"axis": 1},
    allowed=ANY,
    aliases=("stack",),
)
def stack(
    arrays: Sequence[Any], axis: int = 0, *, target: Any = None, out: Any = None
) -> Launch:
    """Arrays along a new dimension.

    Args:
        arrays: One or more, of one type and shape.
        axis: Where the new dimension stands in the result.
        target: Where to compute.
        out: Where the result goes.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    given = several("nn.stack", arrays)
    return call(stack, given, {"axis": axis}, (), target, out)
