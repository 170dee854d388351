"""Sorting along an axis: values, positions, and the gradient."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.ops.dispatch import own
from tensorlang.ops.rows import one_axis, rows_of
from tensorlang.ops.signature import ANY
from tensorlang.ops.tensors import (
    FLOATS,
    Plan,
    Shape,
    TensorOperator,
    axis_of,
    call,
    of_one_type,
    same,
    tensor_algorithm,
    tensor_operator,
)

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch
    from tensorlang.ops.tensors import Names
    from tensorlang.workload import Workload

_HERE: Final = "tensorlang.ops.math.sort_definitions"
_LONG: Final = 192  # elements of a row, up to which counting is faster


def _plan(
    id: str, shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: dict[str, Any]
) -> Plan:
    of_one_type(id, dtypes)
    shape = same(id, ("dy", "x") if len(shapes) > 1 else ("x",), shapes)
    row = rows_of(shape, axis_of(id, -1, len(shape)))
    given = {"descending": asked["descending"], "long": row[1] > _LONG}
    return Plan((row,) * len(shapes), dtypes, (shape,), given)


def _names(workload: Workload) -> Names:
    return (("m", "n"),) * len(workload.shapes)


def _operator(
    name: str, allowed: tuple[str, ...], arrays: int = 1
) -> Callable[[Callable[..., Launch]], TensorOperator]:
    return tensor_operator(
        f"math.{name}",
        f"{_HERE}:{name}",
        plan=partial(_plan, f"math.{name}"),
        names=_names,
        shapes=((512, 4096),) * arrays,
        attributes={"descending": False},
        allowed=allowed,
        aliases=(name,),
        scheduled_as="sorting",
    )


def _launch(  # noqa: PLR0917 - as `call`
    op: TensorOperator,
    arrays: tuple[Any, ...],
    axis: Any,
    descending: Any,
    target: Any,
    out: Any,
) -> Launch:
    """The launch of a call; where the axis is not the last one, on turned arrays."""
    given = {"descending": bool(descending)}
    at = one_axis(op.id, axis)
    rank = len(getattr(arrays[-1], "shape", (0,)))
    if at in (-1, rank - 1):
        return call(op, arrays, given, (), target, out)
    from tensorlang.ops import results  # noqa: PLC0415 - loads the runtime
    from tensorlang.runtime.given_arrays import seen  # noqa: PLC0415 - the same

    own(*arrays)
    at = axis_of(op.id, at, rank)
    held = [seen(array, f"{op.id}: argument {n}") for n, array in enumerate(arrays)]
    if any(type(array) is not np.ndarray for array in held):
        return _on_device(op, arrays, at, given, target, out)
    turned = tuple(np.moveaxis(array, at, -1) for array in held)
    kind = np.dtype(np.int64) if op is argsort else held[-1].dtype
    made, shown = results.made(op.id, out, held[-1].shape, kind, arrays[-1])
    kernel, arguments, _ = call(
        op, turned, given, (), target, np.moveaxis(made, at, -1)
    )
    return kernel, arguments, shown


def _on_device(  # noqa: PLR0917 - as `_launch`
    op: TensorOperator,
    arrays: tuple[Any, ...],
    at: int,
    given: dict[str, bool],
    target: Any,
    out: Any,
) -> Launch:
    """The launches of arrays that are turned where they lie, and turned back."""
    from tensorlang.ops.nn.movement import transpose  # noqa: PLC0415 - only on devices

    rank = len(arrays[-1].shape)
    order = (*range(at), *range(at + 1, rank), at)
    back = (*range(at), rank - 1, *range(at, rank - 1))
    turned = (transpose(array, order, target=target) for array in arrays)
    made = op(*turned, **given, target=target)
    return call(transpose, (made,), {"axes": back}, (), target, out)


@_operator("sort", ANY)
def sort(
    x: Any,
    axis: int = -1,
    descending: bool = False,
    *,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The elements in order along an axis; NaN last, or first where descending.

    Args:
        x: Numbers or truths, of one dimension or more.
        axis: The axis along which they are sorted.
        descending: The largest first.
        target: Where to compute.
        out: Where the result goes.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    return _launch(sort, (x,), axis, descending, target, out)


@_operator("argsort", ANY)
def argsort(
    x: Any,
    axis: int = -1,
    descending: bool = False,
    *,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The positions of the elements in order; equal ones stay in their old order.

    Args:
        x: Numbers or truths, of one dimension or more.
        axis: The axis along which they are sorted.
        descending: The largest first.
        target: Where to compute.
        out: Where the result goes: int64.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    return _launch(argsort, (x,), axis, descending, target, out)


@_operator("sort_grad", FLOATS, 2)
def sort_grad(
    dy: Any,
    x: Any,
    axis: int = -1,
    descending: bool = False,
    *,
    target: Any = None,
    out: Any = None,
) -> Launch:
    """The gradient of `math.sort`: dy where the elements were before.

    Args:
        dy: The gradient of the result.
        x: As for `math.sort`.
        axis: As for `math.sort`.
        descending: As for `math.sort`.
        target: Where to compute.
        out: Where the result goes.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument does not fit.
    """
    return _launch(sort_grad, (dy, x), axis, descending, target, out)


def _long(workload: Workload) -> bool:
    """Whether rows are so long that they are sorted by digits."""
    return bool(workload.named["long"])


for _each in (sort, argsort, sort_grad):
    for _name, _exchange, _feature in (
        ("blocks", "", "shuffle"),
        ("blocks_in_memory", "_through_memory", ""),
    ):
        tensor_algorithm(
            _each,
            _name,
            f"tensorlang.ops.math.device_sorts:{_each.__name__}{_exchange}",
            _long,
            feature=_feature,
        )
