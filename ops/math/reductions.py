"""Reductions along axes: sums, extremes, arg-extremes, moments, any/all; gradients.

Axes are as in NumPy: one, several, or all. Floats keep their dtype and accumulate in
at least f32; integers accumulate in 64 bits. Results do not depend on the number of
threads.
"""

from __future__ import annotations

from tensorlang import ir
from tensorlang.ops.folds import fold
from tensorlang.ops.spec.signature import Anything, ElementType, Floats, Numbers, Scalar


def _constant(rows: ir.rows.Rows, value: float | bool, dtype: ir.DType) -> ir.Tensor:
    """The same value for each row: the reduction of empty rows."""
    return rows.row(lambda _: ir.as_expr(value, dtype), "y")


# ----------------------------------------------------------------------------- sums


@fold("math.sum", Anything, gradient={"linear": False})
def sum(rows: ir.rows.Rows, *, dtype: ElementType | None = None) -> ir.Tensor:
    """Sum over axes; 0 for an empty axis.

    Floats keep their dtype; integers and bool are summed in 64 bits.
    """
    return _total(rows, "sum", 0, dtype)


@fold("math.prod", Anything)
def prod(rows: ir.rows.Rows, *, dtype: ElementType | None = None) -> ir.Tensor:
    """Product over axes; 1 for an empty axis.

    Floats keep their dtype; integers and bool are multiplied in 64 bits.
    """
    return _total(rows, "prod", 1, dtype)


def _total(
    rows: ir.rows.Rows, reducer: str, of_nothing: int, dtype: ir.DType | None
) -> ir.Tensor:
    own = rows.array.dtype
    wide = own if own.is_float else ir.u64 if own.kind == "uint" else ir.i64
    kind = dtype or wide
    if rows.is_empty:
        return _constant(rows, of_nothing, kind)

    def counted(at: ir.rows.Index) -> ir.Expr:
        return rows[at] if own.is_float else rows[at].cast(wide)

    total: ir.Tensor = rows.fold_long(reducer, counted, "y")
    if total.dtype == kind:
        return total
    return rows.row(lambda row: total[row].cast(kind), "rounded")


@fold("math.mean", Floats, gradient={"linear": False})
def mean(rows: ir.rows.Rows, *, dtype: ElementType | None = None) -> ir.Tensor:
    """Mean over axes; NaN for an empty axis."""
    dtype = rows.array.dtype
    if rows.is_empty:
        return _constant(rows, float("nan"), dtype)
    total = rows.fold_long("sum", rows.__getitem__, "y")
    count = rows.length.cast(total.dtype)
    return rows.row(lambda row: ir.stored(total[row] / count, dtype), "mean")


# ------------------------------------------------------------------------- extremes


@fold("math.max", Anything, empty=False)
def max(rows: ir.rows.Rows) -> ir.Tensor:
    """Maximum over axes; NaN if any element is NaN. Of bool, whether any is true."""
    if rows.array.dtype.is_bool:
        return _truth(rows, "any", of_nothing=False)
    return _extreme(rows, "max")


@max.gradient  # ties, where no derivative exists, share dy evenly
def max_grad(dy: ir.Tensor, rows: ir.rows.Rows) -> ir.Tensor:
    """The gradient of `math.max` at `x`: dy, divided evenly among all maxima."""
    return _extreme_grad(dy, rows, "max")


@fold("math.min", Anything, empty=False)
def min(rows: ir.rows.Rows) -> ir.Tensor:
    """Minimum over axes; NaN if any element is NaN. Of bool, whether all are true."""
    if rows.array.dtype.is_bool:
        return _truth(rows, "all", of_nothing=True)
    return _extreme(rows, "min")


@min.gradient  # as above
def min_grad(dy: ir.Tensor, rows: ir.rows.Rows) -> ir.Tensor:
    """The gradient of `math.min` at `x`: dy, divided evenly among all minima."""
    return _extreme_grad(dy, rows, "min")


def _extreme(rows: ir.rows.Rows, name: str) -> ir.Tensor:
    dtype, reducer = rows.array.dtype, ir.extremes.extreme(name, rows.dtype)
    if rows.is_empty:
        return _constant(rows, 0, dtype)
    if not dtype.is_float:
        made: ir.Tensor = rows.fold_long(reducer, rows.__getitem__, "y")
        return made

    def value(at: ir.rows.Index) -> tuple[ir.Expr, ...]:
        return rows[at], ir.extremes.bits_of(rows[at])

    best, bits = rows.fold_long(reducer, value, ("best", "bits"))

    def found(row: ir.rows.Index) -> ir.Expr:
        return ir.stored(ir.extremes.or_nan(best[row], bits[row]), dtype)

    return rows.row(found, "y")


def _extreme_grad(dy: ir.Tensor, rows: ir.rows.Rows, name: str) -> ir.Tensor:
    kind = rows.dtype
    one, zero = ir.as_expr(1.0, kind), ir.as_expr(0.0, kind)
    best, bits = rows.fold(
        ir.extremes.extreme(name, kind),
        lambda at: (rows[at], ir.extremes.bits_of(rows[at])),
        ("best", "bits"),
    )

    def hit(at: ir.rows.Index) -> ir.Expr:
        found = ir.extremes.or_nan(best[rows.of(at)], bits[rows.of(at)])
        both = found.not_equal(found) & rows[at].not_equal(rows[at])
        return rows[at].equal(found) | both

    count = rows.fold("sum", lambda at: ir.select(hit(at), one, zero), "count")

    def share(dy: ir.Expr, at: ir.rows.Index) -> ir.Expr:
        return ir.select(hit(at), dy / count[rows.of(at)], zero)

    return rows.each_of(dy, share)


@fold("math.argmax", Numbers, empty=False, position=True)
def argmax(rows: ir.rows.Rows) -> ir.Tensor:
    """Index of the maximum, as int64.

    The first one among ties; NaN counts as the maximum.
    """
    return _position(rows, "argmax")


@fold("math.argmin", Numbers, empty=False, position=True)
def argmin(rows: ir.rows.Rows) -> ir.Tensor:
    """Index of the minimum, as int64.

    The first one among ties; NaN counts as the minimum.
    """
    return _position(rows, "argmin")


def _position(rows: ir.rows.Rows, name: str) -> ir.Tensor:
    extremes, kind = ir.extremes, rows.dtype
    if rows.is_empty:
        return _constant(rows, 0, ir.i64)
    if extremes.packs(kind):
        best = rows.fold_long(
            "max", lambda at: extremes.packed(name, rows[at], at[1]), "y"
        )
        return rows.row(lambda row: extremes.position_of(best[row]), "at")
    reducer = extremes.extreme_at(name, kind)
    _, at = rows.fold_long(reducer, lambda at: (rows[at], at[1]), ("best", "at"))
    return at  # type: ignore[no-any-return]


# ---------------------------------------------------------------------------- truth


@fold("math.any", Anything)
def any(rows: ir.rows.Rows) -> ir.Tensor:
    """Whether any element is nonzero; False for an empty axis."""
    return _truth(rows, "any", of_nothing=False)


@fold("math.all", Anything)
def all(rows: ir.rows.Rows) -> ir.Tensor:
    """Whether all elements are nonzero; True for an empty axis."""
    return _truth(rows, "all", of_nothing=True)


def _truth(rows: ir.rows.Rows, reducer: str, *, of_nothing: bool) -> ir.Tensor:
    if rows.is_empty:
        return _constant(rows, of_nothing, ir.boolean)

    def value(at: ir.rows.Index) -> ir.Expr:
        return rows[at] if rows.dtype == ir.boolean else rows[at].not_equal(0)

    made: ir.Tensor = rows.fold_long(reducer, value, "y")
    return made


# -------------------------------------------------------------------------- moments


@fold("math.var", Floats, gradient={"linear": False})
def var(rows: ir.rows.Rows, correction: Scalar = 0.0) -> ir.Tensor:
    """Variance over axes; NaN for an empty axis.

    The sum of squared deviations from the mean, divided by `n - correction`. Chunks
    are combined after Chan, Golub and LeVeque, "Updating formulae and a pairwise
    algorithm for computing sample variances", 1979.

    Args:
        correction: Subtracted from the element count in the divisor: 0 for the
            population variance, 1 for the unbiased estimate from a sample.
    """
    dtype = rows.array.dtype
    if rows.is_empty:
        return _constant(rows, float("nan"), dtype)
    one_trip = rows.is_long and rows.array.ndim == 2
    squares = _squares_of_chunks(rows) if one_trip else _squares(rows)
    free = _free(rows, correction)
    return rows.row(lambda row: ir.stored(squares[row] / free, dtype), "var")


def _free(rows: ir.rows.Rows, correction: Scalar) -> ir.Expr:
    """The divisor, `max(n - correction, 0)`."""
    count = rows.length.cast(rows.dtype)
    return ir.binary("max", count - correction, ir.as_expr(0.0, count.dtype))


def _squares(rows: ir.rows.Rows) -> ir.Tensor:
    """The sum of squared deviations of each row, in two passes."""
    total = rows.fold_long("sum", rows.__getitem__, "total")
    count = rows.length.cast(total.dtype)

    def square(at: ir.rows.Index) -> ir.Expr:
        difference: ir.Expr = rows[at] - total[rows.of(at)] / count
        return difference * difference

    made: ir.Tensor = rows.fold_long("sum", square, "squares")
    return made


def _squares_of_chunks(rows: ir.rows.Rows) -> ir.Tensor:
    """The same for rows `[m, n]`, in one pass over memory."""
    parts, kind = rows.parts(), rows.dtype
    sums = parts.fold("sum", lambda _, __, at: rows[at], "sums")

    def own_mean(side: int, part: ir.rows.Index) -> ir.Expr:
        made: ir.Expr = sums.of(side)[part] / parts.count(part).cast(kind)
        return made

    def square(side: int, part: ir.rows.Index, at: ir.rows.Index) -> ir.Expr:
        difference = rows[at] - own_mean(side, part)
        return difference * difference

    inside = parts.fold("sum", square, "inside")
    total: ir.Tensor = parts.total("sum", sums.__getitem__, "total")

    def whole(part: ir.rows.Index) -> ir.Expr:
        mean = sums[part] / parts.count(part).cast(kind)
        off = mean - total[parts.row(part)] / rows.length.cast(kind)
        made: ir.Expr = inside[part] + off * off * parts.count(part).cast(kind)
        return made

    made: ir.Tensor = parts.total("sum", whole, "squares")
    return made


# --------------------------------------------------------------------- exponentials


@fold("math.logsumexp", Floats, gradient={"linear": False})
def logsumexp(rows: ir.rows.Rows) -> ir.Tensor:
    """`log(sum(exp(x)))` over axes, numerically stable; -inf for an empty axis.

    The maximum is subtracted before exp, unless it is infinite.
    """
    dtype = rows.array.dtype
    if rows.is_empty:
        return _constant(rows, float("-inf"), dtype)
    if rows.is_long and rows.array.ndim == 2:
        top, total = _exponentials_of_chunks(rows)
    else:
        top = rows.fold_long(ir.rows.top_of(rows.dtype), rows.__getitem__, "top")
        total = rows.fold_long(
            "sum", lambda at: _exp(rows[at], top[rows.of(at)]), "total"
        )

    def value(row: ir.rows.Index) -> ir.Expr:
        return ir.stored(ir.log(total[row]) + _base(top[row]), dtype)

    return rows.row(value, "logsumexp")


def _base(top: ir.Expr) -> ir.Expr:
    """What is subtracted: the maximum, or 0 where that is infinite."""
    return ir.select(ir.isinf(top), ir.as_expr(0.0, top.dtype), top)


def _exp(value: ir.Expr, top: ir.Expr) -> ir.Expr:
    return ir.exp(value - _base(top))


def _exponentials_of_chunks(rows: ir.rows.Rows) -> tuple[ir.Tensor, ir.Tensor]:
    """Each row's maximum and sum of exponentials, in one pass."""
    parts, largest = rows.parts(), ir.rows.top_of(rows.dtype)
    tops = parts.fold(largest, lambda _, __, at: rows[at], "tops")

    def moved_exp(side: int, part: ir.rows.Index, at: ir.rows.Index) -> ir.Expr:
        return _exp(rows[at], tops.of(side)[part])

    sums = parts.fold("sum", moved_exp, "sums")
    top = parts.total(largest, tops.__getitem__, "top")

    def moved(part: ir.rows.Index) -> ir.Expr:
        share = _exp(_base(tops[part]), top[parts.row(part)])
        none = sums[part].equal(0.0)  # avoids 0 * inf
        return ir.select(none, ir.as_expr(0.0, share.dtype), sums[part] * share)

    return top, parts.total("sum", moved, "total")
