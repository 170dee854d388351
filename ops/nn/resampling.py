"""Weighted sums of elements at given positions along an axis, as in resizing images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tensorlang import ir
from tensorlang.ops.spec.definition import operator
from tensorlang.ops.spec.signature import Floats, Indices, Weights

_USUAL: Final = (8, 64, 56, 56)
_TABLE: Final = (2, 112)
_MOST_TERMS: Final = 4  # more taps are a loop


@operator("nn.resample", shapes=(_USUAL, _TABLE, _TABLE), gradient={"linear": False})
def resample(
    x: Floats, positions: Indices, weights: Weights, axis: int = -1
) -> ir.Tensor:
    """Weighted sums of elements at given positions along an axis.

    Element `o` of the result is the sum of `x[positions[t, o]] * weights[t, o]` over
    `t`: linear or cubic interpolation, for instance.

    Args:
        positions: Positions along the axis, int32 or int64 `[taps, out]`; those beyond
            an end stand for the last element there.
        weights: Their weights, `[taps, out]`.
        axis: The axis.
        out: Output array.
    """
    at = ir.rows.axis_of(axis, x.ndim)
    ir.require(
        positions.ndim == 2 and weights.shape == positions.shape,
        f"positions of {positions.shape} and weights of {weights.shape} have one "
        "shape, [taps, out]",
    )
    size, taps, count = x.shape[at], int(positions.shape[0]), positions.shape[1]
    ir.require(size > 0, f"x of {x.shape} has no elements along axis {at}")
    rows, columns = (ir.elements(part) for part in (x.shape[:at], x.shape[at + 1 :]))
    inner = (columns,) if at < x.ndim - 1 else ()
    view = ir.reshaped(x, (rows, size, *inner))

    def term(
        t: ir.ReduceAxis | int, row: ir.Expr, o: ir.Expr, column: Sequence[ir.Expr]
    ) -> ir.Expr:
        place = positions[t, o].cast(ir.i64)
        place = ir.maximum(ir.minimum(place, size - 1), 0)
        return ir.wide(view[(row, place, *column)]) * ir.wide(weights[t, o])

    def element(row: ir.Expr, o: ir.Expr, *column: ir.Expr) -> ir.Expr | ir.Reduction:
        if taps > _MOST_TERMS or not taps:
            t = ir.reduce_axis(taps, "t")
            return ir.sum(term(t, row, o, column), t)
        first, *rest = (term(t, row, o, column) for t in range(taps))
        for each in rest:
            first = first + each
        return first

    sums = ir.compute((rows, count, *inner), element, "sums")
    if sums.dtype != x.dtype:
        sums = ir.compute(sums.shape, lambda *i: ir.stored(sums[i], x.dtype), "y")
    return ir.reshaped(sums, (*x.shape[:at], count, *x.shape[at + 1 :]))
