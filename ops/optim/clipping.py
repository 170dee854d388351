"""Gradient clipping by the norm of all gradients together.

Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks",
2013.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, ValuesView
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.ops.inplace import inplace, update
from tensorlang.ops.inplace_checks import Arrays, checked, sets_apart
from tensorlang.ops.math.reductions import sum as total
from tensorlang.ops.optim.numbers import positive
from tensorlang.ops.tensors import Names, Plan, Shape, call, tensor_operator

if TYPE_CHECKING:
    from tensorlang.ops.operator import Launch
    from tensorlang.workload import Workload

_HERE: Final = "tensorlang.ops.optim.definitions"
_CLIPPED: Final = Arrays("optim.clip_by_global_norm", ("grads",))
PART: Final = 1 << 13  # elements; `Parts.length` in the definition
_SEVERAL: Final = (list, tuple, Iterator, ValuesView)
_KINDS: Final = (np.float32, np.float64, np.float16)
_EPS: Final = 1e-6  # PyTorch's: a norm of 0 divides


def _flat(
    shapes: tuple[Shape, ...], dtypes: tuple[str, ...], attributes: dict[str, Any]
) -> Plan:
    return Plan(((math.prod(shapes[0]),),), dtypes, ((),), attributes)


def _length(_: Workload) -> Names:
    return (("n",),)


@tensor_operator(
    "optim.sum_of_squares",
    f"{_HERE}:sum_of_squares",
    plan=_flat,
    names=_length,
    shapes=((1 << 24,),),
)
def sum_of_squares(x: Any, *, target: Any = None, out: Any = None) -> Launch:
    """The sum of all elements' squares, in f64 whatever the type of `x`.

    Args:
        x: Floats of any shape.
        target: Where to compute.
        out: Where the result goes, an f64 array without dimensions.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument is out of its domain.
    """
    return call(sum_of_squares, (x,), {}, (), target, out)


def _parts(
    shapes: tuple[Shape, ...], dtypes: tuple[str, ...], attributes: dict[str, Any]
) -> Plan:
    return Plan(((math.prod(shapes[0]),),), dtypes, (), attributes)


@tensor_operator(
    "optim.squares_of_parts",
    f"{_HERE}:squares_of_parts",
    plan=_parts,
    names=_length,
    shapes=((1 << 24,),),
    scheduled_as="rows",
)
def squares_of_parts(x: Any, *, target: Any = None, out: Any = None) -> Launch:
    """The sums of squares of 8192 elements each, in f64 whatever the type of `x`.

    Args:
        x: Floats of any shape.
        target: Where to compute.
        out: Where the result goes, f64 `[ceil(size / 8192)]`.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument is out of its domain.
    """
    return call(squares_of_parts, (x,), {}, (), target, out)


@inplace(
    "optim.scale",
    f"{_HERE}:scaled",
    arrays=("x",),
    read=(),
    scalars={"factor": 0.5},
)
def scale(x: Any, factor: float, *, target: Any = None) -> Launch:
    """Multiply by a number, in place.

    Args:
        x: Floats of any shape, contiguous and writable; or a list of such arrays.
        factor: What to multiply by.
        target: Where to compute.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument is out of its domain.
    """
    return update(scale, (x,), {}, (float(factor),), target)


def clip_by_global_norm(grads: Any, max_norm: float, *, target: Any = None) -> float:
    """Scale all gradients, in place, so that their common norm is at most `max_norm`.

    They are multiplied by `max_norm / (norm + 1e-6)` where that is below 1, as PyTorch
    does it; where it is not, nothing is written. An infinite gradient makes it 0 and
    itself NaN; NaN makes all NaN. The norm is the root of the sum of all squares, which
    is summed in f64: it does not overflow for gradients in f32.

    Args:
        grads: A list or an iterator of float arrays, contiguous and writable, that
            share no memory; or one.
        max_norm: The largest norm that is left alone.
        target: Where to compute.

    Returns:
        The norm as it was.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument is out of its domain.
    """
    id = _CLIPPED.id
    if max_norm != math.inf:
        max_norm = positive(id, "max_norm", max_norm)
    held = list(grads) if isinstance(grads, _SEVERAL) else [grads]
    if len(held) > 1:
        sets_apart(_CLIPPED, _CLIPPED.names, [tuple(held)])
    if not _plain(held):
        held = [array for (array,) in checked(_CLIPPED, _CLIPPED.names, [tuple(held)])]
    norm = math.sqrt(_squares(held, target))
    factor = max_norm / (norm + _EPS)
    if not factor >= 1.0:
        scale(held, factor, target=target)
    return norm


def _plain(arrays: Sequence[Any]) -> bool:
    """Whether all are NumPy arrays that can be updated where they lie."""
    return all(
        type(array) is np.ndarray and array.flags.carray and array.dtype in _KINDS
        for array in arrays
    )


def _squares(arrays: Sequence[np.ndarray[Any, Any]], target: Any) -> float:
    """The sum of all squares: one launch for the arrays of a type, and one for all."""
    by_type: dict[np.dtype[Any], list[np.ndarray[Any, Any]]] = {}
    for array in arrays:
        by_type.setdefault(array.dtype, []).append(array)
    return sum(_of_one_type(same, target) for same in by_type.values())


def _of_one_type(arrays: list[np.ndarray[Any, Any]], target: Any) -> float:
    counts = [-(-array.size // PART) for array in arrays]
    ends = list(accumulate(counts))
    squares = np.empty(ends[-1])
    views = [
        squares[end - count : end] for end, count in zip(ends, counts, strict=True)
    ]
    kernel: Any = squares_of_parts.kernel(arrays[0], target=target)
    if not kernel.each(tuple(arrays), tuple(views)):
        for array, view in zip(arrays, views, strict=True):
            squares_of_parts(array, target=target, out=view)
    return float(total(squares, target=target))
