"""Softmax and its logarithm along an axis, and their gradients.

A row's maximum is taken off before exp, so that nothing overflows; a row of -inf alone
is NaN, as in PyTorch. Gradients compute the exponentials again, in one trip.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tensorlang import ir
from tensorlang.ops.definition import Body, Definition, operator
from tensorlang.ops.signature import Floats

if TYPE_CHECKING:
    from tensorlang.ir import Expr, Tensor
    from tensorlang.ir.rows import Index, Rows

_USUAL: Final = (512, 4096)


def _operator(name: str, of: str = "") -> Callable[[Body], Definition]:
    """An operator, or the gradient of another."""
    return operator(
        f"nn.{name}",
        aliases=(name,),
        shapes=(_USUAL,) * (2 if of else 1),
        scheduled_as="rows",
        whole=True,
        meanings=dict.fromkeys(("x", "axis"), f"As for `nn.{of}`.") if of else None,
    )


@_operator("softmax")
def softmax(x: Floats, axis: int = -1) -> Tensor:
    """exp(x) over its sum along an axis; a number is a row of one.

    Args:
        axis: The axis whose elements sum to 1.
        out: Where the result goes; may be `x`.
    """
    rows = ir.rows.along(x, axis, fixed=True)
    e, total = exponentials(rows)

    def element(at: Index) -> Expr:
        return ir.stored(e(at) * (1.0 / total[rows.of(at)]), x.dtype)

    return rows.whole(rows.each(element, "y"))


@_operator("softmax_grad", "softmax")
def softmax_grad(dy: Floats, x: Floats, axis: int = -1) -> Tensor:
    """The gradient of `nn.softmax`: `y (dy - sum(y dy))`.

    Args:
        out: Where the result goes; may be `dy` or `x`.
    """
    given, rows = ir.rows.together(axis, dy=dy, x=x)
    e, total = exponentials(rows)
    inner = rows.fold("sum", lambda at: e(at) * given[at], "inner")

    def element(at: Index) -> Expr:
        share = 1.0 / total[rows.of(at)]
        mean = inner[rows.of(at)] * share
        return ir.stored(e(at) * share * (given[at] - mean), x.dtype)

    return rows.whole(rows.each(element, "dx"))


@_operator("log_softmax")
def log_softmax(x: Floats, axis: int = -1) -> Tensor:
    """The logarithm of softmax: x less the logarithm of the sum of exp(x).

    Args:
        axis: The axis along which it sums.
        out: Where the result goes; may be `x`.
    """
    rows = ir.rows.along(x, axis, fixed=True)
    top, total = sums(rows)
    log = rows.row(lambda row: ir.log(total[row]), "log_total")

    def element(at: Index) -> Expr:
        row = rows.of(at)
        return ir.stored((rows[at] - top[row]) - log[row], x.dtype)

    return rows.whole(rows.each(element, "y"))


@_operator("log_softmax_grad", "log_softmax")
def log_softmax_grad(dy: Floats, x: Floats, axis: int = -1) -> Tensor:
    """The gradient of `nn.log_softmax`: `dy - softmax(x) sum(dy)`.

    Args:
        out: Where the result goes; may be `dy` or `x`.
    """
    given, rows = ir.rows.together(axis, dy=dy, x=x)
    e, total = exponentials(rows)
    summed = rows.fold("sum", given.__getitem__, "summed")

    def element(at: Index) -> Expr:
        share = summed[rows.of(at)] / total[rows.of(at)]
        return ir.stored(given[at] - e(at) * share, x.dtype)

    return rows.whole(rows.each(element, "dx"))


def exponentials(rows: Rows) -> tuple[Callable[[Index], Expr], Tensor]:
    """`exp(x - top)` of an element, and their sum over each row.

    They are kept, in the memory of the result or in a row of it, but for narrow types
    where rows are no neighbours in memory: there they are computed again.
    """
    top = rows.fold(ir.rows.top_of(rows.dtype), rows.__getitem__, "top")

    def again(at: Index) -> Expr:
        return ir.exp(rows[at] - top[rows.of(at)])

    if rows.array.dtype.bits < 32 and rows.array.ndim > 2:
        return again, rows.fold("sum", again, "total")
    e = rows.each(again, "e")
    return e.__getitem__, rows.fold("sum", e.__getitem__, "total")


def sums(rows: Rows) -> tuple[Tensor, Tensor]:
    """The maximum of each row, and the sum of `exp(x - top)`."""
    top = rows.fold(ir.rows.top_of(rows.dtype), rows.__getitem__, "top")
    total = rows.fold("sum", lambda at: ir.exp(rows[at] - top[rows.of(at)]), "total")
    return top, total
