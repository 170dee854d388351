"""Cross-entropy of class indices and its gradient, as loops.

`[m, n]` or `[m, n, i]` logits with labels `[m]` or `[m, i]`. A label that is neither a
class nor the ignored one is fault 1, and no logit is read for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tensorlang import ir
from tensorlang.ir.contents import blocks
from tensorlang.ops.nn.softmax import sums

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

    rows: ir.rows.Rows
    labels: ir.Tensor
    ignored: ir.Expr
    smoothing: float

    def __getitem__(self, row: ir.rows.Index) -> ir.Expr:
        """A row's label."""
        return self.labels[row].cast(ir.i64)

    def inside(self, row: ir.rows.Index) -> ir.Expr:
        """Whether a row's label is a class index."""
        label = self[row]
        return (label >= 0) & (label < self.rows.length)

    def counts(self, row: ir.rows.Index) -> ir.Expr:
        """Whether a row's label is a class that is not ignored."""
        return self[row].not_equal(self.ignored) & self.inside(row)

    def right(self, row: ir.rows.Index) -> ir.Expr:
        """Whether a row's label is valid: a class or the ignored one."""
        return self.inside(row) | self[row].equal(self.ignored)


def loss(given: Labelled, how: str) -> ir.Tensor:
    """The loss of each row, checked, or their sum or mean."""
    checked = _checked(given, losses(given))
    if how == "none":
        return _as(checked, given.rows.array)
    return _reduced(checked, given, mean=how == "mean")


def losses(given: Labelled) -> ir.Tensor:
    """`log(sum(exp(x))) - x[label]` per row, 0 for ignored rows."""
    rows, logits = given.rows, given.rows.array
    top, total = sums(rows)
    smooth = given.smoothing > 0
    everything = rows.fold("sum", rows.__getitem__, "everything") if smooth else None

    def element(row: ir.rows.Index) -> ir.Expr:
        label = given[row].cast(ir.i32)  # narrow, to be compared in more lanes
        place = (row[0], label.cast(ir.i64), *row[1:])
        own = ir.wide(ir.Load(logits.buffer, place, given.inside(row)))
        if everything is not None:
            mean = everything[row] / rows.length.cast(own.dtype)
            own = own * (1.0 - given.smoothing) + mean * given.smoothing
        value = ir.intrinsic("log", total[row]) + (top[row] - own)
        return ir.Select(given.counts(row), value, ir.as_expr(0.0, value.dtype))

    made = rows.row(element, "losses")
    assert made.stage is not None
    inputs = (*made.stage.inputs, logits)  # read under a mask
    return replace(made, stage=replace(made.stage, inputs=inputs))


def _checked(given: Labelled, made: ir.Tensor) -> ir.Tensor:
    """One value per row, with a fault where the label is invalid."""
    assert made.stage is not None
    (block,) = blocks(made.stage.nest)
    row = tuple(axis.var for axis in block.axes)
    nest = _with_first(
        made.stage.nest, ir.Evaluate(ir.natives.check(given.right(row), _FAULT))
    )
    inputs = (*made.stage.inputs, given.labels)
    return replace(made, stage=replace(made.stage, nest=nest, inputs=inputs))


def _with_first(nest: ir.Stmt, first: ir.Stmt) -> ir.Stmt:
    """The nest with `first` inserted at the start of its block."""
    if isinstance(nest, ir.For):
        return replace(nest, body=_with_first(nest.body, first))
    assert isinstance(nest, ir.Block)
    return replace(nest, body=ir.seq(first, nest.body))


def _reduced(losses: ir.Tensor, given: Labelled, *, mean: bool) -> ir.Tensor:
    """The sum of the losses, or their mean over the rows not ignored."""
    extents = losses.buffer.shape
    axes = [ir.reduce_axis(extent, f"r{n}") for n, extent in enumerate(extents)]

    def folded() -> Any:
        row = tuple(axis.var for axis in axes)
        one = ir.Select(
            given.counts(row),
            ir.as_expr(1.0, losses.dtype),
            ir.as_expr(0.0, losses.dtype),
        )
        return ir.reduction(ir.rows.two_sums(losses.dtype), (losses[row], one), axes)

    whole, count = ir.compute((), folded, ("whole", "count"))

    def result() -> ir.Expr:
        value = whole[()] / count[()] if mean else whole[()]
        return ir.stored(value, given.rows.array.dtype)

    return ir.compute((), result, "y")


def _as(total: ir.Tensor, like: ir.Tensor) -> ir.Tensor:
    if total.dtype == like.dtype:
        return total
    shape = total.buffer.shape
    return ir.compute(shape, lambda *at: ir.stored(total[at], like.dtype), "y")


def shares(given: Labelled, dy: ir.Tensor | ir.Expr, how: str) -> ir.Tensor:
    """The weight of each row's loss in the result, times dy; checked."""
    count = _count(given) if how == "mean" else None

    def share(row: ir.rows.Index) -> ir.Expr:
        value = ir.wide(
            dy[row if how == "none" else ()] if isinstance(dy, ir.Tensor) else dy
        )
        return value if count is None else value / count[()]

    return _checked(given, given.rows.row(share, "share"))


def _count(given: Labelled) -> ir.Tensor:
    """The number of rows not ignored."""
    kind = given.rows.dtype
    shape = ir.rows.row_of(given.rows.array.buffer.shape)
    axes = [ir.reduce_axis(extent, f"r{n}") for n, extent in enumerate(shape)]

    def folded() -> Any:
        row = tuple(axis.var for axis in axes)
        one = ir.Select(given.counts(row), ir.as_expr(1.0, kind), ir.as_expr(0.0, kind))
        return ir.reduction("sum", one, axes)

    return ir.compute((), folded, "count")
