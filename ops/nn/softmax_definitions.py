"""Softmax, its logarithm, and their gradients, as loops along the second dimension.

A row's maximum is taken off before exp, so that nothing overflows; a row of -inf alone
is NaN, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tensorlang.ir import as_expr, intrinsic
from tensorlang.ops.along import Index, Rows, row_of, top_of
from tensorlang.ops.assembling import NARROW, stored

if TYPE_CHECKING:
    from tensorlang.ir.frontend import Tensor
    from tensorlang.ir.nodes import Expr


def exponentials(rows: Rows) -> tuple[Callable[[Index], Expr], Tensor]:
    """`exp(x - top)` of an element, and their sum over each row.

    They are kept, in the memory of the result or in a row of it, but for narrow types
    where rows are no neighbours in memory: there they are computed again.
    """
    top = rows.fold(top_of(rows.dtype), rows.__getitem__, "top")

    def again(at: Index) -> Expr:
        return intrinsic("exp", rows[at] - top[row_of(at)])

    if rows.array.dtype.name in NARROW and rows.array.buffer.ndim > 2:
        return again, rows.fold("sum", again, "total")
    e = rows.each(again, "e")
    return e.__getitem__, rows.fold("sum", e.__getitem__, "total")


def softmax(x: Tensor) -> Tensor:
    """`exp(x - top) / total`."""
    rows = Rows(x)
    e, total = exponentials(rows)

    def element(at: Index) -> Expr:
        share = as_expr(1.0, total.dtype) / total[row_of(at)]
        return stored(e(at) * share, x.dtype)

    made: Tensor = rows.each(element, "y")
    return made


def softmax_grad(dy: Tensor, x: Tensor) -> Tensor:
    """`y (dy - sum(y dy))`, with y computed again."""
    rows, given = Rows(x), Rows(dy)
    e, total = exponentials(rows)
    inner = rows.fold("sum", lambda at: e(at) * given[at], "inner")

    def element(at: Index) -> Expr:
        share = as_expr(1.0, total.dtype) / total[row_of(at)]
        mean = inner[row_of(at)] * share
        return stored(e(at) * share * (given[at] - mean), x.dtype)

    made: Tensor = rows.each(element, "dx")
    return made


def log_softmax(x: Tensor) -> Tensor:
    """`x - top - log(total)`."""
    rows = Rows(x)
    top, total = sums(rows)
    log = rows.row(lambda row: intrinsic("log", total[row]), "log_total")

    def element(at: Index) -> Expr:
        row = row_of(at)
        return stored((rows[at] - top[row]) - log[row], x.dtype)

    made: Tensor = rows.each(element, "y")
    return made


def sums(rows: Rows) -> tuple[Tensor, Tensor]:
    """The maximum of each row, and the sum of `exp(x - top)`."""
    top = rows.fold(top_of(rows.dtype), rows.__getitem__, "top")
    total = rows.fold(
        "sum", lambda at: intrinsic("exp", rows[at] - top[row_of(at)]), "total"
    )
    return top, total


def log_softmax_grad(dy: Tensor, x: Tensor) -> Tensor:
    """`dy - softmax(x) sum(dy)`."""
    rows, given = Rows(x), Rows(dy)
    e, total = exponentials(rows)
    summed = rows.fold("sum", given.__getitem__, "summed")

    def element(at: Index) -> Expr:
        share = summed[row_of(at)] / total[row_of(at)]
        return stored(given[at] - e(at) * share, x.dtype)

    made: Tensor = rows.each(element, "dx")
    return made
