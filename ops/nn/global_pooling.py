"""Pooling over whole images: one number a channel."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.ops.dispatch import own
from tensorlang.ops.nn.windows import LAYOUTS, channels_first
from tensorlang.ops.tensors import (
    Names,
    Plan,
    Shape,
    TensorOperator,
    call,
    of_one_type,
    tensor_operator,
)

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch
    from tensorlang.workload import Workload

_HERE: Final = "tensorlang.ops.nn.pooling_definitions"
_IMAGES: Final = (8, 512, 7, 7)


def _names(workload: Workload) -> Names:
    return tuple(("n", *[None] * (len(s) - 1)) for s in workload.shapes)


def _operator(
    kind: str, *, grad: bool = False
) -> Callable[[Callable[..., Launch]], TensorOperator]:
    """The decorator of one operator of this kind, `avg` or `max`."""
    id = f"nn.global_{kind}_pool{'_grad' if grad else ''}"
    ones = (*_IMAGES[:2], 1, 1)
    shapes = {
        "avg": (ones,),
        "max": (ones, _IMAGES),
    }[kind]
    return tensor_operator(
        id,
        f"{_HERE}:{kind}_pool{'_grad' if grad else ''}",
        plan=partial(_plan, id, (kind == "avg", grad)),
        names=_names,
        shapes=shapes if grad else (_IMAGES,),
        attributes={"size": _IMAGES[2:]} if kind == "avg" and grad else {},
        aliases=(id.removeprefix("nn."),),
        scheduled_as="pool",
    )


def _plan(
    id: str,
    mean_and_grad: tuple[bool, bool],
    shapes: tuple[Shape, ...],
    dtypes: tuple[str, ...],
    asked: dict[str, Any],
) -> Plan:
    """All pixels as one dimension, and one window over them."""
    of_one_type(id, dtypes)
    mean, grad = mean_and_grad
    rank = len(shapes[-1]) - 2
    if rank not in LAYOUTS or not rank:
        raise ShapeError(
            f"{id} takes images of 3 to 5 dimensions, (batch, channels, *spatial), "
            f"not {shapes[-1]}"
        )
    first = channels_first(id, asked.get("layout") or LAYOUTS[rank][0], rank)
    given = shapes[-1]
    size = given[2:] if first else given[1:-1]
    size = tuple(asked["size"]) if mean and grad else size
    batch, channels = given[0], given[1] if first else given[-1]
    pixels = math.prod(size)
    if min(pixels, channels) < 1:
        raise ShapeError(f"{id}: images {given}; only the batch may be empty")
    ones = (1,) * rank
    made = (batch, channels, *ones) if first else (batch, *ones, channels)
    if grad and shapes[0] != made:
        raise ShapeError(f"{id}: dy has shape {shapes[0]}; the result had {made}")
    one = (batch * channels, 1) if first else (batch, 1, channels)
    whole = (batch * channels, pixels) if first else (batch, pixels, channels)
    how: dict[str, Any] = {
        "kernel": (pixels,),
        "stride": (pixels,),
        "padding": (0, 0),
        "dilation": (1,),
        "layout": "NCW" if first else "NWC",
    }
    how |= {"size": (pixels,)} if mean and grad else {"results": (1,)}
    if mean:
        how |= {"count_include_pad": True, "divisor": None}
    canonical = {(False, False): (whole,), (False, True): (one, whole)}
    shown = (batch, channels, *size) if first else (batch, *size, channels)
    inputs = (one,) if mean and grad else canonical[(False, grad)]
    return Plan(inputs, dtypes, (shown if grad else made,), how)


def _pool(kind: str) -> TensorOperator:
    @_operator(kind)
    def global_pool(
        x: Any, layout: str | None = None, *, target: Any = None, out: Any = None
    ) -> Launch:
        """One number a channel: the mean or the largest of all pixels.

        Args:
            x: Images `(batch, channels, *spatial)`, or with the channels last.
            layout: `NCHW` and the like, or with the channels last.
            target: Where to compute.
            out: Where the result goes; its spatial extents are 1.

        Raises:
            ShapeError, DTypeError, ArgumentError: an argument does not fit.
        """
        return call(made, (x,), {"layout": layout}, (), target, out)

    made = global_pool
    return made


def _gradient(kind: str) -> TensorOperator:
    @_operator(kind, grad=True)
    def global_pool_grad(
        dy: Any,
        x: Any,
        layout: str | None = None,
        *,
        target: Any = None,
        out: Any = None,
    ) -> Launch:
        """The gradient of pooling over whole images.

        Args:
            dy: The gradient of the result.
            x: Images, as they were given.
            layout: As it was given.
            target: Where to compute.
            out: Where the result goes.

        Raises:
            ShapeError, DTypeError, ArgumentError: an argument does not fit.
        """
        given: dict[str, Any] = {"layout": layout}
        if kind == "max":
            return call(made, (dy, x), given, (), target, out)
        if type(x) is not np.ndarray:
            own(x)  # whose sizes may have names
        shape = tuple(map(int, x.shape))
        if len(shape) - 2 not in (1, 2, 3):
            raise ArgumentError(f"{made.id}: x has shape {shape}, which is no image")
        rank = len(shape) - 2
        first = channels_first(made.id, layout or LAYOUTS[rank][0], rank)
        given["size"] = shape[2:] if first else shape[1:-1]
        return call(made, (dy,), given, (), target, out)

    made = global_pool_grad
    return made


global_avg_pool, global_max_pool = map(_pool, ("avg", "max"))
global_avg_pool_grad, global_max_pool_grad = map(_gradient, ("avg", "max"))
