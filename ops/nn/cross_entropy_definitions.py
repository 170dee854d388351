"""Cross-entropy of class indices and its gradient, as loops.

`[m, n]` or `[m, n, i]` logits with labels `[m]` or `[m, i]`. A label that is neither a
class nor the ignored one is fault 1, and no logit is read for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tensorlang.ir import as_expr, compute, i32, i64, intrinsic, reduce_axis, reduction
from tensorlang.ir.contents import blocks
from tensorlang.ir.elementwise import stored, wide
from tensorlang.ir.frontend import Tensor
from tensorlang.ir.natives import check
from tensorlang.ir.nodes import Block, Evaluate, For, Load, Select, seq
from tensorlang.ir.rows import Index, Rows, row_of, two_sums
from tensorlang.ops.nn.softmax import sums

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Expr, Stmt

_FAULT = 1


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """Rows of logits with their labels.

    Attributes:
        rows: The logits.
        labels: One label per row.
        ignored: The label that is ignored.
        smoothing: Share of the target distributed evenly over all classes.
    """

    rows: Rows
    labels: Tensor
    ignored: Expr
    smoothing: float

    def __getitem__(self, row: Index) -> Expr:
        """A row's label."""
        return self.labels[row].cast(i64)

    def inside(self, row: Index) -> Expr:
        """Whether a row's label is a class index."""
        label = self[row]
        return (label >= 0) & (label < self.rows.length)

    def counts(self, row: Index) -> Expr:
        """Whether a row's label is a class that is not ignored."""
        return self[row].not_equal(self.ignored) & self.inside(row)

    def right(self, row: Index) -> Expr:
        """Whether a row's label is valid: a class or the ignored one."""
        return self.inside(row) | self[row].equal(self.ignored)


def loss(given: Labelled, how: str) -> Tensor:
    """The loss of each row, checked, or their sum or mean."""
    checked = _checked(given, losses(given))
    if how == "none":
        return _as(checked, given.rows.array)
    return _reduced(checked, given, mean=how == "mean")


def losses(given: Labelled) -> Tensor:
    """`log(sum(exp(x))) - x[label]` per row, 0 for ignored rows."""
    rows, logits = given.rows, given.rows.array
    top, total = sums(rows)
    smooth = given.smoothing > 0
    everything = rows.fold("sum", rows.__getitem__, "everything") if smooth else None

    def element(row: Index) -> Expr:
        label = given[row].cast(i32)  # narrow, to be compared in more lanes
        place = (row[0], label.cast(i64), *row[1:])
        own = wide(Load(logits.buffer, place, given.inside(row)))
        if everything is not None:
            mean = everything[row] / rows.length.cast(own.dtype)
            own = own * (1.0 - given.smoothing) + mean * given.smoothing
        value = intrinsic("log", total[row]) + (top[row] - own)
        return Select(given.counts(row), value, as_expr(0.0, value.dtype))

    made = rows.row(element, "losses")
    assert made.stage is not None
    inputs = (*made.stage.inputs, logits)  # read under a mask
    return replace(made, stage=replace(made.stage, inputs=inputs))


def _checked(given: Labelled, made: Tensor) -> Tensor:
    """One value per row, with a fault where the label is invalid."""
    assert made.stage is not None
    (block,) = blocks(made.stage.nest)
    row = tuple(axis.var for axis in block.axes)
    nest = _with_first(made.stage.nest, Evaluate(check(given.right(row), _FAULT)))
    inputs = (*made.stage.inputs, given.labels)
    return replace(made, stage=replace(made.stage, nest=nest, inputs=inputs))


def _with_first(nest: Stmt, first: Stmt) -> Stmt:
    """The nest with `first` inserted at the start of its block."""
    if isinstance(nest, For):
        return replace(nest, body=_with_first(nest.body, first))
    assert isinstance(nest, Block)
    return replace(nest, body=seq(first, nest.body))


def _reduced(losses: Tensor, given: Labelled, *, mean: bool) -> Tensor:
    """The sum of the losses, or their mean over the rows not ignored."""
    extents = losses.buffer.shape
    axes = [reduce_axis(extent, f"r{n}") for n, extent in enumerate(extents)]

    def folded() -> Any:
        row = tuple(axis.var for axis in axes)
        one = Select(
            given.counts(row), as_expr(1.0, losses.dtype), as_expr(0.0, losses.dtype)
        )
        return reduction(two_sums(losses.dtype), (losses[row], one), axes)

    whole, count = compute((), folded, ("whole", "count"))

    def result() -> Expr:
        value = whole[()] / count[()] if mean else whole[()]
        return stored(value, given.rows.array.dtype)

    made: Tensor = compute((), result, "y")
    return made


def _as(total: Tensor, like: Tensor) -> Tensor:
    if total.dtype == like.dtype:
        return total
    shape = total.buffer.shape
    made: Tensor = compute(shape, lambda *at: stored(total[at], like.dtype), "y")
    return made


def shares(given: Labelled, dy: Tensor | Expr, how: str) -> Tensor:
    """The weight of each row's loss in the result, times dy; checked."""
    count = _count(given) if how == "mean" else None

    def share(row: Index) -> Expr:
        value = wide(dy[row if how == "none" else ()] if isinstance(dy, Tensor) else dy)
        return value if count is None else value / count[()]

    return _checked(given, given.rows.row(share, "share"))


def _count(given: Labelled) -> Tensor:
    """The number of rows not ignored."""
    kind = given.rows.dtype
    shape = row_of(given.rows.array.buffer.shape)
    axes = [reduce_axis(extent, f"r{n}") for n, extent in enumerate(shape)]

    def folded() -> Any:
        row = tuple(axis.var for axis in axes)
        one = Select(given.counts(row), as_expr(1.0, kind), as_expr(0.0, kind))
        return reduction("sum", one, axes)

    made: Tensor = compute((), folded, "count")
    return made
