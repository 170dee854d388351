"""Operators that fold axes: their canonical forms, and the fronts they share.

The axes that are folded become one, with what lies before and behind it: `[m, n]` or
`[m, n, i]`; a dimension `m` of 1 is part of the kernel, all others are symbolic. Axes
that are no neighbours are brought to the end first. Folds that are too long for one
thread at a time are *long*: there the definition has parts of fixed length, so that the
result does not depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.ops.dispatch import own
from tensorlang.ops.tensors import (
    Plan,
    Shape,
    TensorOperator,
    axis_of,
    call,
    collapse,
    of_one_type,
    tensor_operator,
)

if TYPE_CHECKING:
    from tensorlang.ops.operator import Front, Launch
    from tensorlang.ops.tensors import Names
    from tensorlang.workload import Workload

_DEFINITIONS: Final = "tensorlang.ops.math.reduction_definitions"
_SHORT: Final = 64  # rows up to this length are part of the kernel
_LONG_ROW: Final = 1 << 15  # elements from which on a row is cut into parts
_LONG_COLUMN: Final = 1 << 9  # the same of a row whose elements lie apart
_BUSY: Final = 64 * 64  # results from which on there is no need to


def axes_of(id: str, axis: Any, rank: int) -> tuple[int, ...]:
    """The axes that are folded, sorted; all where `axis` is None.

    Raises:
        ArgumentError: there is no such axis, or one is named twice.
    """
    if axis is None:
        return tuple(range(rank))
    given = axis if isinstance(axis, tuple) else (axis,)
    found = sorted(axis_of(id, each, rank) for each in given)
    if len(set(found)) < len(found):
        raise ArgumentError(f"{id}: axis {axis} names an axis twice")
    return tuple(found)


def without(shape: Shape, axes: tuple[int, ...], *, keepdims: bool) -> Shape:
    """The shape that is left when axes are folded."""
    if keepdims:
        return tuple(1 if at in axes else n for at, n in enumerate(shape))
    return tuple(n for at, n in enumerate(shape) if at not in axes)


def neighbours(shape: Shape, axes: tuple[int, ...]) -> bool:
    """Whether nothing but dimensions of 1 lies between the axes."""
    if not axes:
        return True
    between = (at for at in range(axes[0], axes[-1]) if at not in axes)
    return all(shape[at] == 1 for at in between)


def laid(shape: Shape, axes: tuple[int, ...]) -> Shape:
    """The canonical shape of an array whose axes are neighbours."""
    first, last = (axes[0], axes[-1]) if axes else (len(shape), len(shape) - 1)
    before, behind = math.prod(shape[:first]), math.prod(shape[last + 1 :])
    folded = math.prod(shape[first : last + 1])
    if before * behind == 0:
        return (0, 1)
    return (before, folded) if behind == 1 else (before, folded, behind)


def is_long(shape: Shape) -> bool:
    """Whether a fold is worth cutting, by its canonical shape."""
    if len(shape) == 2:
        return shape[1] > _LONG_ROW
    before, folded, behind = shape
    return folded >= 2 * _LONG_COLUMN and before * behind < _BUSY


def fold_names(workload: Workload) -> Names:
    """The symbolic dimensions: all but a single row, and the length of short rows."""
    return tuple(_names(shape) for shape in workload.shapes)


def _names(shape: Shape) -> tuple[str | None, ...]:
    m = "m" if shape[0] != 1 else None
    if len(shape) == 1:
        return (m,)
    short = shape[1] == 0 or (len(shape) == 2 and shape[1] <= _SHORT and m is not None)
    return (m, None if short else "n", "i")[: len(shape)]


def _plan(
    id: str,
    empty: bool,
    shapes: tuple[Shape, ...],
    dtypes: tuple[str, ...],
    asked: dict[str, Any],
) -> Plan:
    """The plan of a fold of one array; `empty`: it has a value where there is none."""
    (shape,) = shapes
    rest = {k: v for k, v in asked.items() if k not in _CALLERS}
    axes, keepdims = asked.get("axis"), asked.get("keepdims", False)
    turned = asked.get("turned")
    if turned is None:
        axes = axes_of(id, axes, len(shape))
        result = without(shape, axes, keepdims=keepdims)
        if not neighbours(shape, axes):
            raise Apart
    else:
        kept = len(shape) - len(turned)
        result = shape[:kept]
        if keepdims:
            result = _with_ones(result, turned)
        axes = tuple(range(kept, len(shape)))
    canonical = laid(shape, axes)
    if canonical[1] == 0 and not empty:
        raise ShapeError(
            f"{id}: an array of shape {shape} has nothing to choose from along axis "
            f"{asked.get('axis')}"
        )
    rest["long"] = is_long(canonical)
    return Plan((canonical,), dtypes, (result,), rest)


_CALLERS: Final = ("axis", "keepdims", "turned")


def _with_ones(shape: Shape, axes: tuple[int, ...]) -> Shape:
    made = list(shape)
    for at in axes:
        made.insert(at, 1)
    return tuple(made)


class Apart(Exception):  # noqa: N818 - a signal to the front, which turns the array
    """The axes to fold are no neighbours."""


def launch_of(  # noqa: PLR0917 - as `call`
    op: TensorOperator,
    x: Any,
    axis: Any,
    keepdims: Any,
    scalars: tuple[Any, ...],
    target: Any,
    out: Any,
) -> Launch:
    """The launch of a fold: the end of its front.

    Raises:
        ArgumentError, DTypeError, ShapeError: an argument does not fit.
    """
    if axis is not None and type(axis) is not int:
        axis = _hashable(op.id, axis)
    given = {"axis": axis, "keepdims": bool(keepdims)}
    try:
        return call(op, (x,), given, scalars, target, out)
    except Apart:
        own(x)
        rank = len(x.shape)
        axes = axes_of(op.id, axis, rank)
        order = (*(at for at in range(rank) if at not in axes), *axes)
        moved = x.permute(*order) if hasattr(x, "permute") else x.transpose(order)
        return call(op, (moved,), given | {"turned": axes}, scalars, target, out)


def _hashable(id: str, axis: Any) -> int | tuple[int, ...]:
    """An axis or several as numbers.

    Raises:
        ArgumentError: they are none.
    """
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    for each in given:
        if isinstance(each, bool) or not isinstance(each, (int, np.integer)):
            raise ArgumentError(
                f"{id}: axis is None, a whole number or a tuple of them, not {axis!r}"
            )
    found = tuple(map(int, given))
    return found if isinstance(axis, (tuple, list)) else found[0]


def fold(
    id: str,
    define: str = "",
    *,
    allowed: tuple[str, ...],
    empty: bool = True,
    **options: Any,
) -> Callable[[Front], TensorOperator]:
    """The decorator of a fold of one array; see `tensor_operator`.

    Args:
        id: Its canonical id.
        define: Its definition's name, by default the last part of the id.
        allowed: The element types that it takes.
        empty: Whether it has a value where there is nothing to fold.
        options: As for `tensor_operator`.
    """
    tail = id.rpartition(".")[2]
    return tensor_operator(
        id,
        f"{_DEFINITIONS}:{define or tail}",
        plan=partial(_plan, id, empty),
        names=fold_names,
        shapes=((512, 4096),),
        attributes={"long": False, "axis": -1},
        allowed=allowed,
        aliases=(tail,),
        scheduled_as="rows",
        **options,
    )


# ------------------------------------------------------------------- gradients


def grad_plan(
    id: str, shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: dict[str, Any]
) -> Plan:
    """The plan of a fold's gradient, from that of its result and its array.

    Raises:
        ShapeError, DTypeError, ArgumentError: an argument does not fit.
    """
    axes, x = _checked_grad(id, shapes, dtypes, asked)
    rest = {k: v for k, v in asked.items() if k not in _CALLERS}
    if neighbours(x, axes):
        row = laid(x, axes)
        return Plan(((row[0], *row[2:]), row), dtypes, (x,), rest)
    runs = [list(run) for _, run in groupby(range(len(x)), lambda at: at in axes)]
    whole = tuple(math.prod(x[at] for at in run) for run in runs)
    dims = tuple(n for n, run in enumerate(runs) if run[0] in axes)
    kept = tuple(extent for n, extent in enumerate(whole) if n not in dims)
    return Plan((kept, whole), dtypes, (x,), rest | {"dims": dims})


def _checked_grad(
    id: str, shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: dict[str, Any]
) -> tuple[tuple[int, ...], Shape]:
    """The axes that were folded, and the shape of the array."""
    of_one_type(id, dtypes)
    dy, x = shapes
    axes = axes_of(id, asked.get("axis"), len(x))
    made = without(x, axes, keepdims=asked.get("keepdims", False))
    if dy != made:
        raise ShapeError(
            f"{id}: dy has shape {dy}; folding axis {asked.get('axis')} of shape {x} "
            f"gives {made}"
        )
    return axes, x


def grad_names(workload: Workload) -> Names:
    """The symbolic dimensions of a fold's gradient, those of dy among x's."""
    dims: Any = workload.named.get("dims")
    _, x = workload.shapes
    if dims is None:
        own = _names(x) if x[1] else ("m", "n", "i")[: len(x)]
        return (own[0], *own[2:]), own
    own = tuple(f"d{n}" for n in range(len(x)))
    return tuple(name for n, name in enumerate(own) if n not in dims), own


def spread_plan(
    id: str, shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: dict[str, Any]
) -> Plan:
    """The plan of a gradient that is that of the result, spread over the array."""
    axes, x = _checked_grad(id, shapes, dtypes, asked)
    kept = without(x, axes, keepdims=True)
    return Plan(collapse((kept, x), x), dtypes, (x,), {})


def grad_launch(  # noqa: PLR0917 - as `call`
    op: TensorOperator,
    arrays: tuple[Any, Any],
    axis: Any,
    keepdims: Any,
    scalars: tuple[Any, ...],
    target: Any,
    out: Any,
) -> Launch:
    """The launch of a fold's gradient: the end of its front."""
    if axis is not None and type(axis) is not int:
        axis = _hashable(op.id, axis)
    given = {"axis": axis, "keepdims": bool(keepdims)}
    return call(op, arrays, given, scalars, target, out)
