"""Cross-entropy of class indices and its gradient, as loops.

`[m, n]` or `[m, n, i]` logits with labels `[m]` or `[m, i]`. A label that is neither a
class nor the ignored one is fault 1, and no logit is read for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tensorlang.ir import as_expr, compute, i32, i64, intrinsic, reduce_axis, reduction
from tensorlang.ir.elementwise import stored, wide
from tensorlang.ir.frontend import Stage, Tensor
from tensorlang.ir.natives import check
from tensorlang.ir.nodes import Block, Evaluate, For, Load, Select, seq
from tensorlang.ir.rows import Index, Rows, row_of, two_sums
from tensorlang.ops.nn.softmax import exponentials, sums

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
    """`log(sum(exp(x))) - x[label]` per row, 0 for ignored rows; then reduced."""
    rows, logits = given.rows, given.rows.array
    top, total = sums(rows)
    smooth = given.smoothing > 0
    everything = rows.fold("sum", rows.__getitem__, "everything") if smooth else None

    def element(row: Index) -> Expr:
        place = (row[0], given[row], *row[1:])
        own = wide(Load(logits.buffer, place, given.inside(row)))
        if everything is not None:
            mean = everything[row] / rows.length.cast(own.dtype)
            own = own * (1.0 - given.smoothing) + mean * given.smoothing
        value = intrinsic("log", total[row]) + (top[row] - own)
        return Select(given.counts(row), value, as_expr(0.0, value.dtype))

    losses = _checked(given, element, "losses")
    if how == "none":
        return _as(losses, logits)
    return _reduced(losses, given, mean=how == "mean")


def _checked(given: Labelled, value: Callable[[Index], Expr], name: str) -> Tensor:
    """One value per row, with a fault where the label is invalid."""
    places: list[Index] = []

    def noted(row: Index) -> Expr:
        places.append(row)
        return value(row)

    made = given.rows.row(noted, name)
    assert made.stage is not None
    fault = Evaluate(check(given.right(places[0]), _FAULT))
    nest = _with_first(made.stage.nest, fault)
    inputs = (*made.stage.inputs, given.rows.array, given.labels)
    return Tensor(made.buffer, Stage(nest, (made.buffer,), inputs))


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


def gradient(given: Labelled, dy: Tensor | Expr, how: str) -> Tensor:
    """The gradient for the logits: `dy * (softmax(x) - target)`, 0 in ignored rows."""
    rows = given.rows
    share = _shares(given, dy, how)
    e, total = exponentials(rows)
    kind, smoothing = total.dtype, given.smoothing

    def element(at: Index) -> Expr:
        row = row_of(at)
        low = as_expr(smoothing, kind) / rows.length.cast(kind)
        hit = at[1].cast(i32).equal(given[row].cast(i32))
        wanted = Select(hit, low + (1.0 - smoothing), low)
        value = (e(at) / total[row] - wanted) * share[row]
        zero = as_expr(0.0, kind)
        return stored(Select(given.counts(row), value, zero), rows.array.dtype)

    made: Tensor = rows.each(element, "dx")
    return made


def _shares(given: Labelled, dy: Tensor | Expr, how: str) -> Tensor:
    """The weight of each row's loss in the result, times dy."""
    count = _count(given) if how == "mean" else None

    def share(row: Index) -> Expr:
        if isinstance(dy, Tensor):
            value = wide(dy[row if how == "none" else ()])
        else:
            value = wide(dy)
        return value if count is None else value / count[()]

    return _checked(given, share, "share")


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
