"""Sorts of rows `[m, n]` on devices: a row that fits a block is one launch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from tensorlang.ir import as_expr, i64
from tensorlang.ir.dtypes import i32
from tensorlang.ir.frontend import Stage, Tensor
from tensorlang.ir.nodes import Buffer, If, Store, seq
from tensorlang.ops.block_radix import Radix, Read, Use, Write
from tensorlang.ops.block_scans import BlockScan, over
from tensorlang.ops.math.sort_keys import digits, key_of, key_type, value_of

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Expr, Stmt, Var

THREADS: Final = 256
ITEMS: Final = (4, 16)  # of a thread, in short rows and in all others
_WIDE_ITEMS: Final = (4, 8)  # the same of keys of 64 bits

# what is stored: from a row, a place, a key and a position
_Final: TypeAlias = "Callable[[Expr, Expr, Expr, Expr], Store]"


def _sort(x: Tensor, *, long: bool, descending: bool, shuffles: bool) -> Tensor:
    del long
    y = Buffer("y", x.dtype, x.shape)

    def final(r: Expr, at: Expr, key: Expr, _: Expr) -> Store:
        return Store(y, (r, at), value_of(key, x.dtype, descending=descending))

    return _sorted(x, y, (x,), final, False, descending, shuffles)


def _argsort(x: Tensor, *, long: bool, descending: bool, shuffles: bool) -> Tensor:
    del long
    made = Buffer("at", i64, x.shape)

    def final(r: Expr, at: Expr, _: Expr, position: Expr) -> Store:
        return Store(made, (r, at), position.cast(i64))

    return _sorted(x, made, (x,), final, True, descending, shuffles)


def _sort_grad(
    dy: Tensor, x: Tensor, *, long: bool, descending: bool, shuffles: bool
) -> Tensor:
    del long
    dx = Buffer("dx", x.dtype, x.shape)

    def final(r: Expr, at: Expr, _: Expr, position: Expr) -> Store:
        return Store(dx, (r, position.cast(i64)), dy[r, at])

    return _sorted(x, dx, (dy, x), final, True, descending, shuffles)


def _sorted(  # noqa: PLR0917 - what the three operators differ in
    x: Tensor,
    result: Buffer,
    inputs: tuple[Tensor, ...],
    final: _Final,
    ordered: bool,
    descending: bool,
    shuffles: bool,
) -> Tensor:
    """Rows by their length: of few keys a thread, of many, or in parts."""

    def read(r: Expr, at: Expr, use: Use) -> Stmt:
        key = key_of(x[r, at], exact=not ordered, descending=descending)
        return use(key, at.cast(i32) if ordered else None)

    kind, (m, n) = key_type(x.dtype), x.shape
    few, many = (
        Radix(BlockScan(THREADS, shuffles), m, n, kind, ordered, items)
        for items in (_WIDE_ITEMS if kind.bits == 64 else ITEMS)
    )
    count = digits(x.dtype)
    parts, held = in_parts(many, read, count, final)
    whole = If(n <= many.part, many.whole(read, count, final), parts)
    nest = If(n <= few.part, few.whole(read, count, final), whole)
    return Tensor(result, Stage(nest, (*held, result), inputs))


def in_parts(
    radix: Radix, read: Read, count: int, final: Write
) -> tuple[Stmt, tuple[Buffer, ...]]:
    """Rows in parts, by so many bytes from the lowest, and the memory it takes.

    The first pass reads what is sorted, the last one stores what is asked for.
    """
    shape = (as_expr(min(count, 2)), radix.rows, radix.length)
    keys, order = (
        Buffer("moved_keys", radix.kind, shape),
        Buffer("moved_order", i32, shape),
    )

    def passed(digit: Var) -> Stmt:
        here, there = digit % 2, (digit + 1) % 2

        def held(r: Expr, at: Expr, use: Use) -> Stmt:
            place = (here, r, at)
            kept = use(keys[place], order[place] if radix.ordered else None)
            first = read(r, at, use)
            return first if count == 1 else If(digit.equal(0), first, kept)

        def stored(r: Expr, at: Expr, key: Expr, value: Expr) -> Stmt:
            place = (there, r, at)
            along = [Store(order, place, value)] if radix.ordered else []
            kept = seq(Store(keys, place, key), *along)
            last = final(r, at, key, value)
            return last if count == 1 else If(digit.equal(count - 1), last, kept)

        return radix.moved(digit, held, stored)

    memory = radix.memory
    sides = (keys, order) if radix.ordered else (keys,)
    loop = over("digit", count, "serial", passed)
    return loop, (*memory, *(sides if count > 1 else ()))


sort, sort_through_memory = (partial(_sort, shuffles=way) for way in (True, False))
argsort, argsort_through_memory = (
    partial(_argsort, shuffles=way) for way in (True, False)
)
sort_grad, sort_grad_through_memory = (
    partial(_sort_grad, shuffles=way) for way in (True, False)
)
