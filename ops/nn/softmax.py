"""Softmax and log-softmax along an axis.

The maximum of a row is subtracted before exp to avoid overflow; a row of only -inf
gives NaN, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tensorlang import ir
from tensorlang.ops.operator import Body, Operator
from tensorlang.ops.spec.definition import operator
from tensorlang.ops.spec.signature import ElementType, Floats

_USUAL: Final = (512, 4096)


def _operator(name: str) -> Callable[[Body], Operator]:
    """An operator along an axis, whose gradient is derived."""
    return operator(
        f"nn.{name}",
        shapes=(_USUAL,),
        scheduled_as="rows",
        whole=True,
        gradient={"linear": False},
    )


@_operator("softmax")
def softmax(
    x: Floats, axis: int = -1, *, dtype: ElementType | None = None
) -> ir.Tensor:
    """`exp(x) / sum(exp(x))` along an axis; a scalar is a row of one element.

    Args:
        axis: Axis along which the results sum to 1.
        out: Output array; may be `x`.
    """
    del dtype  # x is read in it
    rows = ir.rows.along(x, axis, fixed=True)
    e, total = exponentials(rows)

    def element(at: ir.rows.Index) -> ir.Expr:
        return ir.stored(e(at) * (1.0 / total[rows.of(at)]), x.dtype)

    return rows.whole(rows.each(element, "y"))


@_operator("log_softmax")
def log_softmax(
    x: Floats, axis: int = -1, *, dtype: ElementType | None = None
) -> ir.Tensor:
    """Logarithm of softmax: `x - log(sum(exp(x)))` along an axis.

    Args:
        axis: Axis along which the exponentials of the results sum to 1.
        out: Output array; may be `x`.
    """
    del dtype  # x is read in it
    rows = ir.rows.along(x, axis, fixed=True)
    top, total = sums(rows)
    log = rows.row(lambda row: ir.log(total[row]), "log_total")

    def element(at: ir.rows.Index) -> ir.Expr:
        row = rows.of(at)
        return ir.stored((rows[at] - top[row]) - log[row], x.dtype)

    return rows.whole(rows.each(element, "y"))


def exponentials(
    rows: ir.rows.Rows,
) -> tuple[Callable[[ir.rows.Index], ir.Expr], ir.Tensor]:
    """`exp(x - top)` of each element, and its sum over each row.

    The exponentials are stored, in the result's memory or in a row buffer, except for
    narrow types with strided rows, where they are recomputed.
    """
    top = rows.fold(ir.rows.top_of(rows.dtype), rows.__getitem__, "top")

    def again(at: ir.rows.Index) -> ir.Expr:
        return ir.exp(rows[at] - top[rows.of(at)])

    if rows.array.dtype.bits < 32 and rows.array.ndim > 2:
        return again, rows.fold("sum", again, "total")
    e = rows.each(again, "e")
    return e.__getitem__, rows.fold("sum", e.__getitem__, "total")


def sums(rows: ir.rows.Rows) -> tuple[ir.Tensor, ir.Tensor]:
    """The maximum of each row, and the sum of `exp(x - top)`."""
    top = rows.fold(ir.rows.top_of(rows.dtype), rows.__getitem__, "top")
    total = rows.fold("sum", lambda at: ir.exp(rows[at] - top[rows.of(at)]), "total")
    return top, total
