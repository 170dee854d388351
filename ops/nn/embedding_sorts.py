"""The gradient of an embedding on devices, by sorting positions by row.

    order              = positions, stably sorted by ids
    begin[r], end[r]   = the range of row r in that order
    dx[r, c]           = the sum of dy[order[j], c] over that range, in order

Each element of dy is read once and each of dx written once. Sums have the order of the
definition, so results are bit-identical.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tensorlang.ir import as_expr, f32, i64
from tensorlang.ir.dtypes import i32, u32
from tensorlang.ir.elementwise import NARROW
from tensorlang.ir.frontend import Stage, Tensor
from tensorlang.ir.natives import check
from tensorlang.ir.nodes import (
    Alloc,
    Buffer,
    Evaluate,
    If,
    Let,
    Load,
    Select,
    Store,
    Var,
    seq,
)
from tensorlang.ops.block_radix import Radix, Use
from tensorlang.ops.block_scans import BlockScan, over
from tensorlang.ops.nn.embedding_definitions import FAULT, counts, names_row

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Expr, For, Stmt

THREADS: Final = 256
ITEMS: Final = 16  # positions per thread
_FEW: Final = 1 << 16  # rows up to which indices have two bytes
_ACCESS: Final = 16  # bytes per memory access


def embedding_grad(
    dy: Tensor, ids: Tensor, table: Tensor, skipped: Expr | None, *, shuffles: bool
) -> Tensor:
    """The gradient; threads exchange values by shuffles or through shared memory."""
    (count,), (rows, width) = ids.buffer.shape, table.buffer.shape
    narrow = table.dtype.name in NARROW
    made = Buffer("dx" if narrow else "total", table.dtype, (rows, width))
    keys = Buffer("named", u32, (as_expr(2), count))
    order = Buffer("order", i32, (as_expr(2), count))
    begin, end = (Buffer(name, i32, (rows,)) for name in ("begin_of", "end_of"))
    radix = Radix(BlockScan(THREADS, shuffles), as_expr(1), count, u32, True, ITEMS)
    steps = seq(
        _sorted(radix, ids, rows, skipped, keys, order),
        *_bounds(keys, count, begin, end),
        _added(dy, made, order, begin, end),
    )
    held = (keys, order, begin, end, *radix.memory)
    return Tensor(made, Stage(steps, (*held, made), (dy, ids, table)))


def _sorted(  # noqa: PLR0917 - operands of a stage
    radix: Radix,
    ids: Tensor,
    rows: Expr,
    skipped: Expr | None,
    keys: Buffer,
    order: Buffer,
) -> Stmt:
    """Sort positions by row; skipped and out-of-range indices come last."""
    bytes_ = Select(rows < _FEW, as_expr(2), as_expr(4))

    def named(_: Expr, at: Expr, use: Use) -> Stmt:
        row, inside = Var("named_row", i64), Var("inside", (at < rows).dtype)
        key = Select(counts(row, inside, skipped), row, rows)
        return seq(
            Let(row, ids[at].cast(i64)),
            Let(inside, names_row(row, rows)),
            Evaluate(check(inside, FAULT)),
            use(key.cast(u32), at.cast(i32)),
        )

    def stored(side: Expr) -> Callable[[Expr, Expr, Expr, Expr], Stmt]:
        return lambda _, at, key, value: seq(
            Store(keys, (side, at), key), Store(order, (side, at), value)
        )

    def step(digit: Var) -> Stmt:
        here, there = digit % 2, (digit + 1) % 2

        def held(r: Expr, at: Expr, use: Use) -> Stmt:
            kept = use(keys[here, at], order[here, at])
            return If(digit.equal(0), named(r, at, use), kept)

        return radix.moved(digit, held, stored(there))

    whole = radix.whole(named, bytes_, stored(as_expr(0)))
    return If(radix.length <= radix.part, whole, over("digit", bytes_, "serial", step))


def _bounds(keys: Buffer, count: Expr, begin: Buffer, end: Buffer) -> list[Stmt]:
    """The range of each row in the sorted order; empty for rows without positions."""
    (rows,), zero = begin.shape, as_expr(0)
    empty = as_expr(0, i32)

    def clear(row: Expr) -> Stmt:
        return seq(Store(begin, (row,), empty), Store(end, (row,), empty))

    def run(at: Expr) -> Stmt:
        row = Var("named_row", i64)
        last = count - 1
        before = keys[0, Select(at > 0, at - 1, zero)].cast(i64)
        after = keys[0, Select(at < last, at + 1, last)].cast(i64)
        first = at.equal(0) | before.not_equal(row)
        final = at.equal(last) | after.not_equal(row)
        here = at.cast(i32)
        stores = seq(
            If(first, Store(begin, (row,), here)),
            If(final, Store(end, (row,), here + 1)),
        )
        return seq(Let(row, keys[0, at].cast(i64)), If(row < rows, stores))

    return [_each(rows, clear), _each(count, run)]


def _added(dy: Tensor, made: Buffer, order: Buffer, begin: Buffer, end: Buffer) -> For:
    """Sum the elements of each row, several columns per thread."""
    rows, width = made.shape
    lanes = _lanes(width, dy.dtype.bytes)
    groups = width // lanes
    kind = f32 if made.dtype.name in NARROW else made.dtype
    sums = Buffer("sums", kind, (as_expr(lanes),), "register")

    def columns(at: Expr) -> Stmt:
        row, first = Var("row", i64), at % groups * lanes
        start, count = Var("start", i64), Var("count", i64)
        position = Var("position", i64)

        def each(body: Callable[[Var], Stmt]) -> Stmt:
            return over("lane", lanes, "vectorized", body)

        def add(j: Var) -> Stmt:
            def lane(v: Var) -> Stmt:
                number = dy[position, first + v].cast(kind)
                return Store(sums, (v,), sums[v] + number)

            place = Load(order, (as_expr(0), start + j)).cast(i64)
            return seq(Let(position, place), each(lane))

        return seq(
            Alloc(sums),
            Let(row, at // groups),
            Let(start, begin[row].cast(i64)),
            Let(count, end[row].cast(i64) - start),
            each(lambda v: Store(sums, (v,), as_expr(0, kind))),
            over("j", count, "serial", add),
            each(lambda v: Store(made, (row, first + v), sums[v].cast(made.dtype))),
        )

    return _each(rows * groups, columns)


def _lanes(width: Expr, size: int) -> int:
    """Columns per thread: those of one memory access, if they divide the width."""
    lanes = _ACCESS // size
    whole = getattr(width, "value", 1)
    while whole % lanes:
        lanes //= 2
    return lanes


def _each(count: Expr, body: Callable[[Expr], Stmt]) -> For:
    """Launch one thread per element."""

    def block(b: Var) -> Stmt:
        def thread(t: Var) -> Stmt:
            at = b * THREADS + t
            return If(at < count, body(at))

        return over("t", THREADS, "thread.x", thread)

    return over("b", (count + (THREADS - 1)) // THREADS, "block.x", block)
