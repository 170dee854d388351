"""Slices of arrays, as NumPy cuts them, and where their gradients go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from tensorlang.ops.binding import type_of
from tensorlang.ops.dispatch import own
from tensorlang.ops.nn.movement_plans import ANY
from tensorlang.ops.nn.slicing_plans import cut, put_back, sliced, sliced_names
from tensorlang.ops.tensors import call, tensor_operator

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch

Bounds: TypeAlias = "Sequence[int | None] | int | None"
_HERE: Final = "tensorlang.ops.nn.slicing_definitions"
# the middle third of the columns: keys, of queries, keys and values side by side
_MIDDLE: Final = {"begin": (0, 1024), "size": (-1, 1024), "step": (1, 1)}


@tensor_operator(
    "nn.slice",
    f"{_HERE}:slice",
    plan=sliced,
    names=sliced_names,
    shapes=((8192, 3072),),
    attributes=_MIDDLE,
    allowed=ANY,
    aliases=("slice",),
)
def slice(
    x: Any,
    begin: Bounds,
    end: Bounds,
    step: Bounds = None,
    *,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The elements `x[begin[0]:end[0]:step[0], begin[1]:end[1]:step[1], ...]`.

    Bounds and steps are those of Python's slices: negative ones count from the end or
    go backwards, bounds beyond the end are the end, and None is left open. Dimensions
    for which none is given are taken whole. A symbolic tensor is indexed itself, as in
    `x[:, 1:3]`, which also takes places, new dimensions and `...`.

    Args:
        x: An array of any type and shape.
        begin: For each dimension, the first place that is taken.
        end: For each dimension, the place before which it ends.
        step: For each dimension, how far it is to the next place; 1 where left out.
        target: Where to compute.
        out: Where the result goes.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    if type(x) is not np.ndarray:
        own(x)  # before the bounds, in which a graph's own sizes may stand
        type_of("nn.slice", x)
    asked = cut("nn.slice", tuple(x.shape), begin, end, step)
    return call(slice, (x,), asked, (), target, out)


@tensor_operator(
    "nn.slice_grad",
    f"{_HERE}:slice_grad",
    plan=put_back,
    names=sliced_names,
    shapes=((8192, 1024),),
    attributes={**_MIDDLE, "shape": (-1, 3072)},
    allowed=ANY,
    scheduled_as="slice_grad",
    aliases=("slice_grad",),
)
def slice_grad(
    dy: Any,
    x: Any,
    begin: Bounds,
    end: Bounds,
    step: Bounds = None,
    *,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The gradient of `slice`: `dy` where it was taken from, and 0 around it.

    Every place is written once, so nothing is added up.

    Args:
        dy: The gradient of the result.
        x: What was sliced; only its shape counts.
        begin: As in the forward call.
        end: As in the forward call.
        step: As in the forward call.
        target: Where to compute.
        out: Where the result goes.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    id = "nn.slice_grad"
    if type(dy) is not np.ndarray or type(x) is not np.ndarray:
        own(dy, x)
        type_of(id, x)
    shape = tuple(x.shape)
    asked = {**cut(id, shape, begin, end, step), "shape": shape}
    return call(slice_grad, (dy,), asked, (), target, out)
