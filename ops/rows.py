"""Operators along one axis: arrays as rows, one kernel for any number of them.

An array and an axis become `[m, n]`, `m` rows of length `n` along the axis; or
`[m, n, i]` where other axes lie behind it, with `i` neighbours in memory. `m` and `i`
are symbolic, `n` is part of the kernel.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.errors import ArgumentError
from tensorlang.ops.tensors import Plan, Shape, axis_of, of_one_type, same

if TYPE_CHECKING:
    from tensorlang.ops.tensors import Names
    from tensorlang.workload import Workload

NAMES: Final = ("m", None, "i")


def rows_of(shape: Shape, axis: int) -> Shape:
    """The canonical shape of an array seen along an axis, counted from the front.

    An array without elements has no rows, of length 1.
    """
    if 0 in shape:
        return (0, 1)
    before, behind = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    return (before, shape[axis], behind)[: 2 if behind == 1 else 3]


def one_axis(id: str, axis: Any) -> int:
    """An axis as a caller gave it, as a number.

    Raises:
        ArgumentError: it is none.
    """
    if type(axis) is int:
        return axis
    if isinstance(axis, np.integer):
        return int(axis)
    raise ArgumentError(f"{id}: axis is a whole number, not {axis!r}")


def along(
    id: str, shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: dict[str, Any]
) -> Plan:
    """The plan of an operator along `axis` whose arrays all have the result's shape.

    Raises:
        ArgumentError: there is no such axis.
        DTypeError, ShapeError: the arrays differ.
    """
    of_one_type(id, dtypes)
    shape = same(id, ("dy", "x") if len(shapes) > 1 else ("x",), shapes)
    row = shape or (1,)  # a number is a row of one, as in PyTorch
    at = axis_of(id, asked.get("axis", -1), len(row))
    rest = {name: value for name, value in asked.items() if name != "axis"}
    return Plan((rows_of(row, at),) * len(shapes), dtypes, (shape,), rest)


def row_names(workload: Workload) -> Names:
    """The symbolic dimensions of arrays that are all seen along one axis."""
    return tuple(NAMES[: len(shape)] for shape in workload.shapes)
