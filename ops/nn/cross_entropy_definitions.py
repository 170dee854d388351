"""Cross-entropy of class indices or shares, and its gradient, as loops.

`[m, n]` or `[m, n, i]` logits with labels `[m]` or `[m, i]`, or shares of the shape of
the logits. A label that is neither a class nor the ignored one is fault 1, and no logit
is read for it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tensorlang import ir
from tensorlang.frozen import frozen
from tensorlang.ir.contents import blocks
from tensorlang.ops.nn.softmax import sums

_FAULT = 1


@frozen(eq=False)
class Labelled:
    """Rows of logits with their labels."""

    rows: ir.rows.Rows  # logits
    labels: ir.Tensor  # one label per row, or the share of each class
    ignored: ir.Expr  # label that is ignored
    smoothing: float  # share of the target distributed evenly over all classes
    weights: ir.Tensor | None  # weight of each class, or None

    @property
    def shared(self) -> bool:
        """Whether labels are shares of classes."""
        return self.labels.dtype.is_float

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

    def weight(self, of: ir.Expr, where: ir.Expr | None = None) -> ir.Expr:
        """The weight of a class; read only under a condition, if there is one."""
        if self.weights is None:
            return ir.as_expr(1.0, self.rows.dtype)
        if where is None:
            return ir.wide(self.weights[of])
        return ir.wide(ir.Load(self.weights.buffer, (of,), where))

    def counted(self, row: ir.rows.Index) -> ir.Expr:
        """What a row counts for in the mean."""
        if self.shared:
            return ir.as_expr(1.0, self.rows.dtype)
        own = self.weight(self[row], self.inside(row))
        return ir.Select(self.counts(row), own, ir.as_expr(0.0, own.dtype))

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
    if given.shared or given.weights is not None:
        return _weighed(given)
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


def _weighed(given: Labelled) -> ir.Tensor:
    """`sum(weight * share * (log(sum(exp(x))) - x))` per row, 0 for ignored rows."""
    rows, smoothing = given.rows, given.smoothing
    top, total = sums(rows)
    log = rows.row(lambda row: ir.log(total[row]), "log_total")

    def loss(at: ir.rows.Index) -> ir.Expr:
        row = rows.of(at)
        if given.shared:
            share = given.labels[at].cast(rows.dtype) * (1.0 - smoothing)
        else:
            own = at[1].equal(given[row])
            kind = rows.dtype
            share = ir.select(
                own, ir.as_expr(1.0 - smoothing, kind), ir.as_expr(0.0, kind)
            )
        if smoothing:
            share = share + smoothing / rows.length.cast(rows.dtype)
        made: ir.Expr = given.weight(at[1]) * share
        lost = log[row] + (top[row] - rows[at])
        none = share.equal(0.0) & ~ir.as_expr(given.shared)
        return ir.select(none, ir.as_expr(0.0, lost.dtype), made * lost)

    every: ir.Tensor = rows.fold("sum", loss, "weighed")
    if given.shared:
        return every

    def element(row: ir.rows.Index) -> ir.Expr:
        return ir.select(given.counts(row), every[row], ir.as_expr(0.0, every.dtype))

    return rows.row(element, "losses")


def _checked(given: Labelled, made: ir.Tensor) -> ir.Tensor:
    """One value per row, with a fault where the label is invalid."""
    if given.shared:
        return made
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
        both = losses[row], given.counted(row)
        return ir.reduction(ir.rows.two_sums(losses.dtype), both, axes)

    whole, count = ir.compute((), folded, ("whole", "count"))

    def result() -> ir.Expr:
        value = whole[()] / count[()] if mean else whole[()]
        return ir.stored(value, given.rows.array.dtype)

    return ir.compute((), result, "y")


def _as(total: ir.Tensor, like: ir.Tensor) -> ir.Tensor:
    if total.dtype == like.dtype:
        return total
    shape = total.buffer.shape
    return ir.compute(shape, lambda *i: ir.stored(total[i], like.dtype), "y")


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
    """The number of rows not ignored, or the sum of their weights."""
    shape = ir.rows.row_of(given.rows.array.buffer.shape)
    axes = [ir.reduce_axis(extent, f"r{n}") for n, extent in enumerate(shape)]

    def folded() -> Any:
        row = tuple(axis.var for axis in axes)
        return ir.reduction("sum", given.counted(row), axes)

    return ir.compute((), folded, "count")
