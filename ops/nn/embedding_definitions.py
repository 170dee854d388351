"""Embedding lookup and its gradient as loops; an index out of range is fault 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorlang.ir import as_expr, compute, f32, i64, select
from tensorlang.ir.elementwise import NARROW, stored, wide
from tensorlang.ir.frontend import Stage, Tensor
from tensorlang.ir.natives import check
from tensorlang.ir.nests import axis, nest
from tensorlang.ir.nodes import (
    Buffer,
    Evaluate,
    If,
    Let,
    Load,
    Store,
    Var,
    seq,
)

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Expr

FAULT = 1


def embedding(ids: Tensor, table: Tensor) -> Tensor:
    """`y[n, :] = table[ids[n], :]`; 0 where the index is out of range."""
    (count,), (rows, width) = ids.buffer.shape, table.buffer.shape
    y = Buffer("y", table.dtype, (count, width))
    axes = [axis("p", count), axis("c", width)]
    position, column = (each.var for each in axes)
    row, inside = Var("row", i64), Var("inside", (position < rows).dtype)
    zero = as_expr(0).cast(table.dtype)
    read = Load(table.buffer, (row, column), inside)
    body = seq(
        Let(row, ids[position].cast(i64)),
        Let(inside, names_row(row, rows)),
        Evaluate(check(inside, FAULT)),
        Store(y, (position, column), select(inside, read, zero)),
    )
    return Tensor(y, Stage(nest("y", axes, body), (y,), (ids, table)))


def embedding_grad(
    dy: Tensor, ids: Tensor, table: Tensor, skipped: Expr | None
) -> Tensor:
    """Scatter-add the rows of dy in the order of ids, except to the row `skipped`.

    Narrow types accumulate in f32 and are rounded once.
    """
    (count,), (rows, width) = ids.buffer.shape, table.buffer.shape
    narrow = table.dtype.name in NARROW
    total = Buffer("total", f32 if narrow else table.dtype, (rows, width))
    axes = [axis("p", count, "ordered"), axis("c", width)]
    all_of = [axis("r", rows), axis("z", width)]
    position, column = (each.var for each in axes)
    row, inside = Var("row", i64), Var("inside", (position < rows).dtype)
    place = (row, column)
    added = Load(total, place) + wide(dy[position, column])
    body = seq(
        Let(row, ids[position].cast(i64)),
        Let(inside, names_row(row, rows)),
        Evaluate(check(inside, FAULT)),
        If(counts(row, inside, skipped), Store(total, place, added)),
    )
    zero = Store(total, tuple(a.var for a in all_of), as_expr(0.0).cast(total.dtype))
    nests = seq(nest("clear", all_of, zero), nest("add", axes, body))
    made = Tensor(total, Stage(nests, (total,), (dy, ids, table)))
    if not narrow:
        return made
    rounded: Tensor = compute(
        (rows, width), lambda r, z: stored(made[r, z], table.dtype), "dx"
    )
    return rounded


def scattered(ids: Tensor, x: Tensor, updates: Tensor, reduction: str) -> Tensor:
    """A copy of x whose rows are combined with the updates, in the order of `ids`."""
    (count,), (rows, width) = ids.buffer.shape, x.buffer.shape
    y = Buffer("y", x.dtype, (rows, width))
    axes = [axis("p", count, "ordered"), axis("c", width)]
    all_of = [axis("r", rows), axis("z", width)]
    position, column = (each.var for each in axes)
    row, inside = Var("row", i64), Var("inside", (position < rows).dtype)
    place = (row, column)
    made = _combined(reduction, Load(y, place), updates[position, column])
    body = seq(
        Let(row, ids[position].cast(i64)),
        Let(inside, names_row(row, rows)),
        Evaluate(check(inside, FAULT)),
        If(inside, Store(y, place, stored(made, x.dtype))),
    )
    index = tuple(a.var for a in all_of)
    nests = seq(
        nest("copy", all_of, Store(y, index, x[index])), nest("add", axes, body)
    )
    return Tensor(y, Stage(nests, (y,), (ids, x, updates)))


def _combined(reduction: str, old: Expr, new: Expr) -> Expr:
    """An element and its update; NaN wins in `max` and `min`."""
    if reduction == "none":
        return new
    old, new = wide(old), wide(new)
    if old.dtype.is_bool:
        return old | new if reduction in {"add", "max"} else old & new
    if reduction == "add":
        return old + new
    if reduction == "mul":
        return old * new
    first = new > old if reduction == "max" else new < old
    return select(first | new.not_equal(new), new, old)


def counts(row: Expr, inside: Expr, skipped: Expr | None) -> Expr:
    """Whether an index is in range and not the skipped row."""
    return inside if skipped is None else inside & row.not_equal(skipped)


def names_row(row: Expr, rows: Expr) -> Expr:
    """Whether an index is in range."""
    return (row >= 0) & (row < rows)
