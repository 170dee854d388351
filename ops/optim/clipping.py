"""Gradient clipping by global norm.

Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks",
2013.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, ValuesView
from itertools import accumulate
from typing import Any, Final

import numpy as np

from tensorlang import ir
from tensorlang.ops.calls.update_checks import Sets
from tensorlang.ops.calls.updates import update
from tensorlang.ops.math.reductions import sum as total
from tensorlang.ops.optim.numbers import positive
from tensorlang.ops.spec.definition import operator
from tensorlang.ops.spec.signature import Float, Floats, InOut, Scalar

PART: Final = 1 << 13  # elements; `Parts.length` in the definition
_SEVERAL: Final = (list, tuple, Iterator, ValuesView)
_KINDS: Final = (np.float32, np.float64, np.float16)
_EPS: Final = 1e-6  # as in PyTorch: avoids division by a norm of 0


@operator("optim.sum_of_squares", aliases=(), whole=True, shapes=((1 << 24,),))
def sum_of_squares(x: Floats) -> ir.Tensor:
    """The sum of the squares of all elements, in f64 for every type of `x`."""
    n = ir.elements(x.shape)
    flat, k = ir.reshaped(x, (n,)), ir.reduce_axis(n, "k")

    def squares() -> ir.Reduction:
        value = flat[k.var].cast(ir.f64)
        return ir.sum(value * value, k)

    return ir.compute((), squares, "total")


@operator(
    "optim.squares_of_parts",
    aliases=(),
    shapes=((1 << 24,),),
    scheduled_as="rows",
    whole=True,
)
def squares_of_parts(x: Floats) -> ir.Tensor:
    """The sum of squares of each chunk of 8192 elements, in f64 for every type."""
    n = ir.elements(x.shape)
    flat = ir.reshaped(x, (n,))
    row = ir.Tensor(ir.Buffer("row", x.dtype, (ir.as_expr(1), ir.as_expr(n))))

    def square(_: int, __: ir.rows.Index, at: ir.rows.Index) -> ir.Expr:
        value = flat[at[1]].cast(ir.f64)
        return value * value

    made: ir.Tensor = ir.rows.Rows(row).parts().fold("sum", square, "squares").every
    return made


@update("optim.scale", aliases=())
def scale(x: InOut[Float], factor: Scalar) -> Float:
    """Multiply `x` by a number, in place.

    Args:
        x: Floats of any shape, contiguous and writable; or a list of such arrays.
        factor: The multiplier.
    """
    return x * factor


def clip_by_global_norm(grads: Any, max_norm: float, *, target: Any = None) -> float:
    """Scale gradients in place so that their global 2-norm is at most `max_norm`.

    As in PyTorch, all are multiplied by `max_norm / (norm + 1e-6)` if that is below 1;
    otherwise nothing is written. If an element is infinite, it becomes NaN and finite
    ones become 0; if one is NaN, all become NaN. Squares are accumulated in f64, so
    that the norm of f32 gradients does not overflow.

    Args:
        grads: A list or iterator of float arrays, contiguous, writable and not
            overlapping in memory; or a single array.
        max_norm: The maximum norm.
        target: Where to compute.

    Returns:
        The norm before scaling.

    Raises:
        DTypeError, ShapeError, ArgumentError: an argument is out of its domain.
    """
    id = "optim.clip_by_global_norm"
    if max_norm != math.inf:
        max_norm = positive(id, "max_norm", max_norm)
    held = list(grads) if isinstance(grads, _SEVERAL) else [grads]
    sets = Sets(id, ("grads",), (), [tuple(held)])
    if len(held) > 1:
        sets.check_apart()
    if not _plain(held):
        held = [array for (array,) in sets.checked()]
    norm = math.sqrt(_squares(held, target))
    factor = max_norm / (norm + _EPS)
    if not factor >= 1.0:
        scale(held, factor, target=target)
    return norm


def _plain(arrays: Sequence[object]) -> bool:
    """Whether all are NumPy arrays that can be updated without a copy."""
    return all(
        type(array) is np.ndarray and array.flags.carray and array.dtype in _KINDS
        for array in arrays
    )


def _squares(arrays: Sequence[np.ndarray], target: object) -> float:
    """The sum of all squares: two launches per element type."""
    by_type: dict[np.dtype, list[np.ndarray]] = {}
    for array in arrays:
        by_type.setdefault(array.dtype, []).append(array)
    return sum(_of_one_type(same, target) for same in by_type.values())


def _of_one_type(arrays: list[np.ndarray], target: object) -> float:
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
