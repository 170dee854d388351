"""Parallel permutations: each pass of the radix sort in blocks of elements.

The sort is stable, so that the result is bitwise equal to the definition's
(`tensorlang.ops.math.block_radix`).
"""

from __future__ import annotations

from typing import Final, TypeAlias

from tensorlang import ir
from tensorlang.ops.math.block_radix import Radix, Use
from tensorlang.ops.math.block_scans import BlockScan, over
from tensorlang.ops.random.definitions import Source
from tensorlang.ops.random.integer_definitions import permuted

_Pair: TypeAlias = "tuple[ir.Buffer, ir.Buffer]"
BLOCK: Final = 4096  # elements
_THREADS: Final = 256


def permutation(key: Source, count: ir.Size) -> ir.Tensor:
    """A random permutation of 0 .. n-1, with each pass in parallel blocks."""
    threads = min(_THREADS, BLOCK)
    scan = BlockScan(threads, shuffles=False)
    radix = Radix(
        scan, ir.as_expr(1), ir.as_expr(count), ir.u32, True, BLOCK // threads
    )

    def moved(digit: ir.Expr, here: _Pair, there: _Pair) -> ir.Stmt:
        def read(_: ir.Expr, at: ir.Expr, use: Use) -> ir.Stmt:
            return use(*(held[at] for held in here))

        def write(_: ir.Expr, at: ir.Expr, *values: ir.Expr) -> ir.Stmt:
            pairs = zip(there, values, strict=True)
            return ir.seq(ir.Store(held, (at,), value) for held, value in pairs)

        return radix.moved(digit, read, write)

    def sorted_by(here: _Pair, there: _Pair) -> ir.Stmt:
        def there_and_back(pair: ir.Var) -> list[ir.Stmt]:
            first = pair * 2
            return [moved(first, here, there), moved(first + 1, there, here)]

        return over("pair", ir.u32.bytes // 2, "serial", there_and_back)

    return permuted(key, count, sorted_by, radix.memory)
