"""Operators that move elements: other shapes, other orders of dimensions.

None computes anything, so they take every element type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.ops.dispatch import own
from tensorlang.ops.nn.movement_plans import (
    ANY,
    dimension_names,
    flat,
    flat_names,
    reshaped,
    transposed,
    transposed_back,
)
from tensorlang.ops.tensors import TensorOperator, call, planned, tensor_operator

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch
    from tensorlang.ops.tensors import Sizes

_HERE: Final = "tensorlang.ops.nn.movement_definitions"
_PICTURES: Final = ((64, 32, 28, 28),)
_WHOLE: Final = (int, np.integer)


def whole(id: str, name: str, values: Any) -> tuple[int, ...]:
    """Whole numbers, or one, as a tuple.

    Raises:
        ArgumentError: they are none.
    """
    given = (values,) if isinstance(values, _WHOLE) else values
    try:
        made = tuple(given)
    except TypeError:
        made = (None,)
    if not all(isinstance(v, _WHOLE) and not isinstance(v, bool) for v in made):
        raise ArgumentError(f"{id}: {name} is made of whole numbers, not {values!r}")
    return tuple(map(int, made))


@tensor_operator(
    "nn.transpose",
    f"{_HERE}:transpose",
    plan=transposed,
    names=dimension_names,
    shapes=((4096, 4096),),
    attributes={"axes": None},
    allowed=ANY,
    scheduled_as="transpose",
    aliases=("transpose",),
)
def transpose(
    x: Any, axes: Sequence[int] | None = None, *, target: Any = None, out: Any = None
) -> Launch:
    """The array with its dimensions in another order, moved in memory.

    Args:
        x: An array of any type and shape.
        axes: For each dimension of the result, the one of `x` that it is; the reverse
            order where it is left out.
        target: Where to compute.
        out: Where the result goes.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    order = None if axes is None else whole("nn.transpose", "axes", axes)
    return call(transpose, (x,), {"axes": order}, (), target, out)


@tensor_operator(
    "nn.transpose_grad",
    f"{_HERE}:transpose",
    plan=transposed_back,
    names=dimension_names,
    shapes=((4096, 4096),),
    attributes={"axes": None},
    allowed=ANY,
    scheduled_as="transpose",
    aliases=("transpose_grad",),
)
def transpose_grad(
    dy: Any,
    x: Any,
    axes: Sequence[int] | None = None,
    *,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The gradient of `transpose`: the dimensions in their old order.

    Args:
        dy: The gradient of the result.
        x: What was transposed; only its shape counts.
        axes: As in the forward call.
        target: Where to compute.
        out: Where the result goes.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    id = "nn.transpose_grad"
    own(dy, x)
    order = None if axes is None else whole(id, "axes", axes)
    launch = call(transpose_grad, (dy,), {"axes": order}, (), target, out)
    made: Any = launch[2] if out is None else out
    _same(id, tuple(getattr(made, "array", made).shape), x)
    return launch


@tensor_operator(
    "nn.reshape",
    f"{_HERE}:copy",
    plan=reshaped,
    names=flat_names,
    shapes=_PICTURES,
    attributes={"shape": (-1,)},
    allowed=ANY,
    aliases=("reshape",),
)
def reshape(x: Any, shape: Sizes, *, target: Any = None, out: Any = None) -> Launch:
    """The same elements, in row-major order, as an array of another shape.

    Nothing is moved where `x` lies in a row: the result is a view of it, unless there
    is an `out`. (An array of JAX is copied.)

    Args:
        x: An array of any type and shape.
        shape: The new shape; one extent may be -1, for what is left.
        target: Where to compute.
        out: Where the result goes.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    if type(x) is not np.ndarray:
        own(x)  # before the shape, in which a graph's own sizes may stand
    asked = {"shape": whole("nn.reshape", "shape", shape)}
    return _viewed(reshape, x, asked, target, out)


@tensor_operator(
    "nn.reshape_grad",
    f"{_HERE}:copy",
    plan=reshaped,
    names=flat_names,
    shapes=_PICTURES,
    attributes={"shape": (-1,)},
    allowed=ANY,
    aliases=("reshape_grad",),
)
def reshape_grad(
    dy: Any,
    x: Any,
    shape: Sizes,
    *,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The gradient of `reshape`: `dy` in the shape of `x`; a view where it can be.

    Args:
        dy: The gradient of the result.
        x: What was reshaped; only its shape counts.
        shape: As in the forward call.
        target: Where to compute.
        out: Where the result goes.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    id = "nn.reshape_grad"
    own(dy, x)
    given = whole(id, "shape", shape)
    (result,) = reshaped((tuple(x.shape),), ("f32",), {"shape": given}).results
    _same(id, result, dy)
    return _viewed(reshape_grad, dy, {"shape": tuple(x.shape)}, target, out)


@tensor_operator(
    "nn.batch_flatten",
    f"{_HERE}:copy",
    plan=flat,
    names=flat_names,
    shapes=_PICTURES,
    allowed=ANY,
    aliases=("batch_flatten",),
)
def batch_flatten(x: Any, *, target: Any = None, out: Any = None) -> Launch:
    """All dimensions behind the first one as one; a view where it can be.

    Args:
        x: An array of any type with one dimension or more.
        target: Where to compute.
        out: Where the result goes.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    return _viewed(batch_flatten, x, {}, target, out)


@tensor_operator(
    "nn.batch_flatten_grad",
    f"{_HERE}:copy",
    plan=reshaped,
    names=flat_names,
    shapes=((64, 32 * 28 * 28),),
    attributes={"shape": (-1,)},
    allowed=ANY,
    aliases=("batch_flatten_grad",),
)
def batch_flatten_grad(
    dy: Any, x: Any, *, target: Any = None, out: Any = None
) -> Launch:
    """The gradient of `batch_flatten`: `dy` in the shape of `x`.

    Args:
        dy: The gradient of the result.
        x: What was flattened; only its shape counts.
        target: Where to compute.
        out: Where the result goes.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    id = "nn.batch_flatten_grad"
    own(dy, x)
    (result,) = flat((tuple(x.shape),), ("f32",), {}).results
    _same(id, result, dy)
    return _viewed(batch_flatten_grad, dy, {"shape": tuple(x.shape)}, target, out)


def _same(id: str, shape: tuple[int, ...], array: Any) -> None:
    if tuple(array.shape) != shape:
        raise ShapeError(
            f"{id}: an array of shape {shape} is needed, not {tuple(array.shape)}"
        )


def _viewed(
    op: TensorOperator, x: Any, attributes: dict[str, Any], target: Any, out: Any
) -> Launch:
    """The launch of a call whose result is a view of `x` where that is possible."""
    if out is not None:
        return call(op, (x,), attributes, (), target, out)
    if type(x) is np.ndarray:
        if x.flags.c_contiguous:
            return _nothing, (), x.reshape(_result(op, x.shape, attributes))
        return call(op, (x,), attributes, (), target, out)
    from tensorlang.ops.dispatch import Late  # noqa: PLC0415 - with the runtime
    from tensorlang.runtime.arrays import kind_of  # noqa: PLC0415 - the runtime
    from tensorlang.runtime.given_arrays import seen  # noqa: PLC0415 - the runtime

    own(x)
    array = seen(x, f"{op.id}: x")
    viewed = kind_of(x) == "torch" and type(array) is np.ndarray
    if not viewed or not array.flags.c_contiguous:
        return call(op, (x,), attributes, (), target, out)
    seen = array.reshape(_result(op, array.shape, attributes))
    return _nothing, (), Late(seen, "torch")


def _result(
    op: TensorOperator, shape: tuple[int, ...], attributes: dict[str, Any]
) -> tuple[int, ...]:
    """The result's shape, by the plan where it has not been asked for before."""
    key = ("result", shape, *attributes.values())
    found: tuple[int, ...] | None = op.kernels.get(key)
    if found is None:
        (found,) = planned(op, (shape,), ("",), attributes).results
        op.kernels[key] = found
    return found


def _nothing() -> None:
    """Move nothing: the result is a view."""
