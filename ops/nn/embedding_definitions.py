"""Embedding lookup and its gradient as loops; an index out of range is fault 1."""

from __future__ import annotations

from collections.abc import Callable

from tensorlang import ir

_FAULT = 1


def at_row(
    index: ir.Expr,
    rows: ir.Expr,
    use: Callable[[ir.Var, ir.Var], ir.Stmt],
    name: str = "row",
) -> ir.Stmt:
    """The use of an index's row, and of whether there is such a row, checked."""
    row, inside = ir.Var(name, ir.i64), ir.Var("inside", ir.boolean)
    return ir.seq(
        ir.Let(row, index.cast(ir.i64)),
        ir.Let(inside, (row >= 0) & (row < rows)),
        ir.Evaluate(ir.natives.check(inside, _FAULT)),
        use(row, inside),
    )


def embedding(ids: ir.Tensor, table: ir.Tensor) -> ir.Tensor:
    """`y[n, :] = table[ids[n], :]`; 0 where the index is out of range."""
    (count,), (rows, width) = ids.buffer.shape, table.buffer.shape
    y = ir.Buffer("y", table.dtype, (count, width))
    axes = [ir.nests.axis("p", count), ir.nests.axis("c", width)]
    position, column = (each.var for each in axes)
    zero = ir.as_expr(0).cast(table.dtype)

    def read(row: ir.Var, inside: ir.Var) -> ir.Stmt:
        value = ir.Load(table.buffer, (row, column), inside)
        return ir.Store(y, (position, column), ir.select(inside, value, zero))

    body = at_row(ids[position], rows, read)
    return ir.Tensor(y, ir.Stage(ir.nests.nest("y", axes, body), (y,), (ids, table)))


def embedding_grad(
    dy: ir.Tensor, ids: ir.Tensor, table: ir.Tensor, skipped: ir.Expr | None
) -> ir.Tensor:
    """Scatter-add the rows of dy in the order of ids, except to the row `skipped`.

    Narrow types accumulate in f32 and are rounded once.
    """
    (count,), (rows, width) = ids.buffer.shape, table.buffer.shape
    narrow = table.dtype.name in ir.NARROW
    total = ir.Buffer("total", ir.f32 if narrow else table.dtype, (rows, width))
    axes = [ir.nests.axis("p", count, "ordered"), ir.nests.axis("c", width)]
    all_of = [ir.nests.axis("r", rows), ir.nests.axis("z", width)]
    position, column = (each.var for each in axes)

    def add(row: ir.Var, inside: ir.Var) -> ir.Stmt:
        place = (row, column)
        value = ir.Load(total, place) + ir.wide(dy[position, column])
        return ir.If(counts(row, inside, skipped), ir.Store(total, place, value))

    zero = ir.Store(
        total, tuple(a.var for a in all_of), ir.as_expr(0.0).cast(total.dtype)
    )
    nests = ir.seq(
        ir.nests.nest("clear", all_of, zero),
        ir.nests.nest("add", axes, at_row(ids[position], rows, add)),
    )
    made = ir.Tensor(total, ir.Stage(nests, (total,), (dy, ids, table)))
    if not narrow:
        return made
    return ir.compute(
        (rows, width), lambda r, z: ir.stored(made[r, z], table.dtype), "dx"
    )


def scattered(
    ids: ir.Tensor, x: ir.Tensor, updates: ir.Tensor, reduction: str
) -> ir.Tensor:
    """A copy of x whose rows are combined with the updates, in the order of `ids`."""
    (count,), (rows, width) = ids.buffer.shape, x.buffer.shape
    y = ir.Buffer("y", x.dtype, (rows, width))
    axes = [ir.nests.axis("p", count, "ordered"), ir.nests.axis("c", width)]
    all_of = [ir.nests.axis("r", rows), ir.nests.axis("z", width)]
    position, column = (each.var for each in axes)

    def combine(row: ir.Var, inside: ir.Var) -> ir.Stmt:
        place = (row, column)
        made = _combined(reduction, ir.Load(y, place), updates[position, column])
        return ir.If(inside, ir.Store(y, place, ir.stored(made, x.dtype)))

    index = tuple(a.var for a in all_of)
    nests = ir.seq(
        ir.nests.nest("copy", all_of, ir.Store(y, index, x[index])),
        ir.nests.nest("add", axes, at_row(ids[position], rows, combine)),
    )
    return ir.Tensor(y, ir.Stage(nests, (y,), (ids, x, updates)))


def _combined(reduction: str, old: ir.Expr, new: ir.Expr) -> ir.Expr:
    """An element and its update; NaN wins in `max` and `min`."""
    if reduction == "none":
        return new
    old, new = ir.wide(old), ir.wide(new)
    if old.dtype.is_bool:
        return old | new if reduction in {"add", "max"} else old & new
    if reduction == "add":
        return old + new
    if reduction == "mul":
        return old * new
    first = new > old if reduction == "max" else new < old
    return ir.select(first | new.not_equal(new), new, old)


def counts(row: ir.Expr, inside: ir.Expr, skipped: ir.Expr | None) -> ir.Expr:
    """Whether an index is in range and not the skipped row."""
    return inside if skipped is None else inside & row.not_equal(skipped)
