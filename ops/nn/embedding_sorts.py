"""The gradient of an embedding on devices, by sorting positions by row.

    order              = positions, stably sorted by ids
    begin[r], end[r]   = the range of row r in that order
    dx[r, c]           = the sum of dy[order[j], c] over that range, in order

Each element of dy is read once and each of dx written once. Sums have the order of the
definition, so results are bit-identical.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tensorlang import ir
from tensorlang.ops.math.block_radix import Radix, Use
from tensorlang.ops.math.block_scans import BlockScan, over
from tensorlang.ops.nn.embedding_definitions import at_row, counts

THREADS: Final = 256
ITEMS: Final = 16  # positions per thread
_FEW: Final = 1 << 16  # rows up to which indices have two bytes
_ACCESS: Final = 16  # bytes per memory access


def embedding_grad(
    dy: ir.Tensor,
    ids: ir.Tensor,
    table: ir.Tensor,
    skipped: ir.Expr | None,
    *,
    shuffles: bool,
) -> ir.Tensor:
    """The gradient; threads exchange values by shuffles or through shared memory."""
    (count,), (rows, width) = ids.buffer.shape, table.buffer.shape
    narrow = table.dtype.name in ir.NARROW
    made = ir.Buffer("dx" if narrow else "total", table.dtype, (rows, width))
    keys = ir.Buffer("named", ir.u32, (ir.as_expr(2), count))
    order = ir.Buffer("order", ir.i32, (ir.as_expr(2), count))
    begin, end = (ir.Buffer(name, ir.i32, (rows,)) for name in ("begin_of", "end_of"))
    radix = Radix(
        BlockScan(THREADS, shuffles), ir.as_expr(1), count, ir.u32, True, ITEMS
    )
    steps = ir.seq(
        _sorted(radix, ids, rows, skipped, keys, order),
        *_bounds(keys, count, begin, end),
        _added(dy, made, order, begin, end),
    )
    held = (keys, order, begin, end, *radix.memory)
    return ir.Tensor(made, ir.Stage(steps, (*held, made), (dy, ids, table)))


def _sorted(  # noqa: PLR0917 - operands of a stage
    radix: Radix,
    ids: ir.Tensor,
    rows: ir.Expr,
    skipped: ir.Expr | None,
    keys: ir.Buffer,
    order: ir.Buffer,
) -> ir.Stmt:
    """Sort positions by row; skipped and out-of-range indices come last."""
    bytes_ = ir.Select(rows < _FEW, ir.as_expr(2), ir.as_expr(4))

    def named(_: ir.Expr, at: ir.Expr, use: Use) -> ir.Stmt:
        def placed(row: ir.Var, inside: ir.Var) -> ir.Stmt:
            key = ir.Select(counts(row, inside, skipped), row, rows)
            return use(key.cast(ir.u32), at.cast(ir.i32))

        return at_row(ids[at], rows, placed, "named_row")

    def stored(
        side: ir.Expr,
    ) -> Callable[[ir.Expr, ir.Expr, ir.Expr, ir.Expr], ir.Stmt]:
        return lambda _, at, key, value: ir.seq(
            ir.Store(keys, (side, at), key), ir.Store(order, (side, at), value)
        )

    def step(digit: ir.Var) -> ir.Stmt:
        here, there = digit % 2, (digit + 1) % 2

        def held(r: ir.Expr, at: ir.Expr, use: Use) -> ir.Stmt:
            kept = use(keys[here, at], order[here, at])
            return ir.If(digit.equal(0), named(r, at, use), kept)

        return radix.moved(digit, held, stored(there))

    whole = radix.whole(named, bytes_, stored(ir.as_expr(0)))
    return ir.If(
        radix.length <= radix.part, whole, over("digit", bytes_, "serial", step)
    )


def _bounds(
    keys: ir.Buffer, count: ir.Expr, begin: ir.Buffer, end: ir.Buffer
) -> list[ir.Stmt]:
    """The range of each row in the sorted order; empty for rows without positions."""
    (rows,), zero = begin.shape, ir.as_expr(0)
    empty = ir.as_expr(0, ir.i32)

    def clear(row: ir.Expr) -> ir.Stmt:
        return ir.seq(ir.Store(begin, (row,), empty), ir.Store(end, (row,), empty))

    def run(at: ir.Expr) -> ir.Stmt:
        row = ir.Var("named_row", ir.i64)
        last = count - 1
        before = keys[0, ir.Select(at > 0, at - 1, zero)].cast(ir.i64)
        after = keys[0, ir.Select(at < last, at + 1, last)].cast(ir.i64)
        first = at.equal(0) | before.not_equal(row)
        final = at.equal(last) | after.not_equal(row)
        here = at.cast(ir.i32)
        stores = ir.seq(
            ir.If(first, ir.Store(begin, (row,), here)),
            ir.If(final, ir.Store(end, (row,), here + 1)),
        )
        return ir.seq(ir.Let(row, keys[0, at].cast(ir.i64)), ir.If(row < rows, stores))

    return [_each(rows, clear), _each(count, run)]


def _added(
    dy: ir.Tensor, made: ir.Buffer, order: ir.Buffer, begin: ir.Buffer, end: ir.Buffer
) -> ir.For:
    """Sum the elements of each row, several columns per thread."""
    rows, width = made.shape
    lanes = _lanes(width, dy.dtype.bytes)
    groups = width // lanes
    kind = ir.f32 if made.dtype.name in ir.NARROW else made.dtype
    sums = ir.Buffer("sums", kind, (ir.as_expr(lanes),), "register")

    def columns(at: ir.Expr) -> ir.Stmt:
        row, first = ir.Var("row", ir.i64), at % groups * lanes
        start, count = ir.Var("start", ir.i64), ir.Var("count", ir.i64)
        position = ir.Var("position", ir.i64)

        def each(body: Callable[[ir.Var], ir.Stmt]) -> ir.Stmt:
            return over("lane", lanes, "vectorized", body)

        def add(j: ir.Var) -> ir.Stmt:
            def lane(v: ir.Var) -> ir.Stmt:
                number = dy[position, first + v].cast(kind)
                return ir.Store(sums, (v,), sums[v] + number)

            place = ir.Load(order, (ir.as_expr(0), start + j)).cast(ir.i64)
            return ir.seq(ir.Let(position, place), each(lane))

        return ir.seq(
            ir.Alloc(sums),
            ir.Let(row, at // groups),
            ir.Let(start, begin[row].cast(ir.i64)),
            ir.Let(count, end[row].cast(ir.i64) - start),
            each(lambda v: ir.Store(sums, (v,), ir.as_expr(0, kind))),
            over("j", count, "serial", add),
            each(lambda v: ir.Store(made, (row, first + v), sums[v].cast(made.dtype))),
        )

    return _each(rows * groups, columns)


def _lanes(width: ir.Expr, size: int) -> int:
    """Columns per thread: those of one memory access, if they divide the width."""
    lanes = _ACCESS // size
    whole = getattr(width, "value", 1)
    while whole % lanes:
        lanes //= 2
    return lanes


def _each(count: ir.Expr, body: Callable[[ir.Expr], ir.Stmt]) -> ir.For:
    """Launch one thread per element."""

    def block(b: ir.Var) -> ir.Stmt:
        def thread(t: ir.Var) -> ir.Stmt:
            at = b * THREADS + t
            return ir.If(at < count, body(at))

        return over("t", THREADS, "thread.x", thread)

    return over("b", (count + (THREADS - 1)) // THREADS, "block.x", block)
