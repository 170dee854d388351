"""Plans of operators that move elements: the fewest dimensions that say the same.

Dimensions that stay side by side are one. Long ones are symbolic, so that one kernel
serves all sizes; short ones are part of the kernel, which may then unroll them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tensorlang.errors import ArgumentError, ShapeError
from tensorlang.ops.tensors import FLOATS, Plan, Shape, axis_of

if TYPE_CHECKING:
    from tensorlang.ops.tensors import Names
    from tensorlang.workload import Workload

INTEGERS: Final = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
ANY: Final = (*FLOATS, *INTEGERS, "bool")
_TOO_MANY: Final = 1 << 60  # elements; NumPy counts their bytes in 63 bits
SHORT: Final = 16  # a dimension below this is no tile's


def flat_names(_: Workload) -> Names:
    """The one dimension of an array that is copied."""
    return (("n",),)


def dimension_names(workload: Workload) -> Names:
    """The long dimensions; the only one, whatever its length."""
    (shape,) = workload.shapes
    if len(shape) < 2:
        return (("n",) * len(shape),)
    return (tuple(f"d{n}" if d >= SHORT else None for n, d in enumerate(shape)),)


def reshaped(
    shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: dict[str, Any]
) -> Plan:
    """A copy in order, in the shape that is asked for.

    Raises:
        ShapeError: the elements are not as many.
    """
    (given,) = shapes
    total, shape = math.prod(given), asked.get("shape", (-1,))
    left = [n for n, extent in enumerate(shape) if extent == -1]
    known = math.prod(extent for extent in shape if extent != -1)
    if len(left) == 1 and known > 0 and total % known == 0:
        shape = tuple(total // known if e == -1 else e for e in shape)
    if min(shape, default=0) < 0 or math.prod(shape) != total:
        raise ShapeError(
            f"an array of shape {given} has {total} elements, and shape {shape} does "
            "not hold as many; at most one extent may be -1"
        )
    if math.prod(extent for extent in shape if extent) >= _TOO_MANY:
        raise ShapeError(
            f"no array can have the shape {shape}: its extents are too large"
        )
    return Plan(((total,),), dtypes, (tuple(shape),))


def flat(shapes: tuple[Shape, ...], dtypes: tuple[str, ...], _: dict[str, Any]) -> Plan:
    """A copy in order, as a matrix with the first dimension's rows.

    Raises:
        ShapeError: there is no first dimension.
    """
    (shape,) = shapes
    if not shape:
        raise ShapeError("nn.batch_flatten: an array of shape () has no batch")
    return Plan(((math.prod(shape),),), dtypes, ((shape[0], math.prod(shape[1:])),))


def transposed(
    shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: dict[str, Any]
) -> Plan:
    """Runs of dimensions that stay side by side as one, those of length 1 left out."""
    (shape,) = shapes
    axes = order_of("nn.transpose", asked.get("axes"), len(shape))
    return _moved(shape, axes, dtypes)


def transposed_back(
    shapes: tuple[Shape, ...], dtypes: tuple[str, ...], asked: dict[str, Any]
) -> Plan:
    """The same for the order that undoes the one asked for."""
    (shape,) = shapes
    axes = order_of("nn.transpose_grad", asked.get("axes"), len(shape))
    inverse = sorted(range(len(axes)), key=axes.__getitem__)
    return _moved(shape, inverse, dtypes)


def order_of(id: str, axes: Any, rank: int) -> tuple[int, ...]:
    """The order of dimensions, each counted from the front.

    Raises:
        ArgumentError: it does not name each dimension once.
    """
    if axes is None:
        return tuple(reversed(range(rank)))
    order = tuple(axis_of(id, axis, rank) for axis in axes)
    if sorted(order) != list(range(rank)):
        raise ArgumentError(
            f"{id}: axes name each of {rank} dimensions once, not {tuple(axes)}"
        )
    return order


def _moved(shape: Shape, axes: Sequence[int], dtypes: tuple[str, ...]) -> Plan:
    result = tuple(shape[axis] for axis in axes)
    if 0 in shape:
        return Plan(((0,),), dtypes, (result,), {"axes": (0,)})
    real = [axis for axis in axes if shape[axis] != 1]
    place = {axis: n for n, axis in enumerate(sorted(real))}
    runs: list[list[int]] = []
    for axis in real:
        if runs and place[axis] == place[runs[-1][-1]] + 1:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    before = sorted(runs)
    merged = tuple(math.prod(shape[axis] for axis in run) for run in before or [[]])
    order = tuple(before.index(run) for run in runs) or (0,)
    return Plan((merged,), dtypes, (result,), {"axes": order})
