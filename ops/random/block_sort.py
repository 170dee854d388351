"""Parallel permutations: each pass of the radix sort in blocks of elements.

The sort is stable, so that the result is bitwise equal to the definition's
(`tensorlang.ops.block_radix`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from tensorlang.ir import as_expr
from tensorlang.ir.dtypes import u32
from tensorlang.ir.nodes import Store, seq
from tensorlang.ops.block_radix import Radix, Use
from tensorlang.ops.block_scans import BlockScan, over
from tensorlang.ops.random.integer_definitions import permuted

if TYPE_CHECKING:
    from tensorlang.ir import Tensor
    from tensorlang.ir.nodes import Buffer, Expr, Stmt, Var
    from tensorlang.ir.sizes import Size
    from tensorlang.ops.random.definitions import Source

_Pair: TypeAlias = "tuple[Buffer, Buffer]"
BLOCK: Final = 4096  # elements
_THREADS: Final = 256


def permutation(key: Source, count: Size) -> Tensor:
    """A random permutation of 0 .. n-1, with each pass in parallel blocks."""
    threads = min(_THREADS, BLOCK)
    scan = BlockScan(threads, shuffles=False)
    radix = Radix(scan, as_expr(1), as_expr(count), u32, True, BLOCK // threads)

    def moved(digit: Expr, here: _Pair, there: _Pair) -> Stmt:
        def read(_: Expr, at: Expr, use: Use) -> Stmt:
            return use(*(held[at] for held in here))

        def write(_: Expr, at: Expr, *values: Expr) -> Stmt:
            pairs = zip(there, values, strict=True)
            return seq(Store(held, (at,), value) for held, value in pairs)

        return radix.moved(digit, read, write)

    def sorted_by(here: _Pair, there: _Pair) -> Stmt:
        def there_and_back(pair: Var) -> list[Stmt]:
            first = pair * 2
            return [moved(first, here, there), moved(first + 1, there, here)]

        return over("pair", u32.bytes // 2, "serial", there_and_back)

    return permuted(key, count, sorted_by, radix.memory)
