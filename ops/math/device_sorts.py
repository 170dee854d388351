"""Radix sorts on devices; a row that fits one block takes one launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tensorlang import ir
from tensorlang.ops.math.block_radix import Radix, Read, Use, Write
from tensorlang.ops.math.block_scans import BlockScan, over
from tensorlang.ops.math.sort_keys import digits, key_type

if TYPE_CHECKING:
    from tensorlang.ops.math.sort_definitions import Sort

THREADS: Final = 256
ITEMS: Final = (4, 16)  # per thread: for short rows, for all others
_WIDE_ITEMS: Final = (4, 8)  # the same for 64-bit keys


def by_blocks(sort: Sort, shuffles: bool) -> ir.Tensor:
    """Sort rows, by length: with few keys per thread, with many, or in parts."""
    ordered, kind = sort.ordered, key_type(sort.array.dtype)

    def read(r: ir.Expr, at: ir.Expr, use: Use) -> ir.Stmt:
        key = sort.key(r, at, exact=not ordered)
        return use(key, at.cast(ir.i32) if ordered else None)

    def final(r: ir.Expr, to: ir.Expr, key: ir.Expr, position: ir.Expr) -> ir.Stmt:
        return sort.placed(r, to, position.cast(ir.i64), sort.value(key))

    m, n = sort.rows.count, sort.rows.length
    few, many = (
        Radix(BlockScan(THREADS, shuffles), m, n, kind, ordered, items)
        for items in (_WIDE_ITEMS if kind.bits == 64 else ITEMS)
    )
    count = digits(sort.array.dtype)
    parts, held = in_parts(many, read, count, final)
    whole = ir.If(n <= many.part, many.whole(read, count, final), parts)
    nest = ir.If(n <= few.part, few.whole(read, count, final), whole)
    return sort.made(nest, *held)


def in_parts(
    radix: Radix, read: Read, count: int, final: Write
) -> tuple[ir.Stmt, tuple[ir.Buffer, ...]]:
    """Nest that sorts rows in parts by their `count` lowest bytes, and its buffers.

    The first pass reads with `read`, the last one stores with `final`.
    """
    shape = (ir.as_expr(min(count, 2)), radix.rows, radix.length)
    keys = ir.Buffer("moved_keys", radix.kind, shape)
    order = ir.Buffer("moved_order", ir.i32, shape)

    def passed(digit: ir.Var) -> ir.Stmt:
        here, there = digit % 2, (digit + 1) % 2

        def held(r: ir.Expr, at: ir.Expr, use: Use) -> ir.Stmt:
            place = (here, r, at)
            kept = use(keys[place], order[place] if radix.ordered else None)
            first = read(r, at, use)
            return first if count == 1 else ir.If(digit.equal(0), first, kept)

        def stored(r: ir.Expr, at: ir.Expr, key: ir.Expr, value: ir.Expr) -> ir.Stmt:
            place = (there, r, at)
            along = [ir.Store(order, place, value)] if radix.ordered else []
            kept = ir.seq(ir.Store(keys, place, key), *along)
            last = final(r, at, key, value)
            return last if count == 1 else ir.If(digit.equal(count - 1), last, kept)

        return radix.moved(digit, held, stored)

    memory = radix.memory
    sides = (keys, order) if radix.ordered else (keys,)
    loop = over("digit", count, "serial", passed)
    return loop, (*memory, *(sides if count > 1 else ()))
