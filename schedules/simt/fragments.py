"""Distribution of a block's tile over the lanes of its warps, as `mma` leaves results.

A 16 x 16 product is spread over 32 lanes: rows as 2 x 8, columns as 2 x 4 x 2. The lane
index is the 8 and the 4; the factors of 2 are each lane's own sums.

    row    = (warp row, product, half, lane // 4)
    column = (warp column, product, half, lane % 4, 2)

If the column operand is contiguous along steps, two products may interleave in 32
columns. A lane then has eight neighbouring columns, stored at once:

    column = (warp column, two products, lane % 4, product, half, 2)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tensorlang.frozen import frozen
from tensorlang.ir.collectives import WARP
from tensorlang.schedules.tiling import fused
from tensorlang.scheduling import Schedule

QUAD: Final = 4  # lanes that share a row
_BANKS: Final = 8  # 16-byte parts until the banks repeat


@frozen
class Lanes:
    """A tile of rows and columns, and the warps along each."""

    sizes: tuple[int, int]  # rows and columns
    warps: tuple[int, int]  # warps along rows and columns
    wide: bool = False  # whether a lane has eight neighbouring columns, of two products

    @property
    def threads(self) -> int:
        """Threads of the block."""
        return WARP * self.warps[0] * self.warps[1]

    @property
    def sums(self) -> int:
        """Sums per thread."""
        return self.sizes[0] * self.sizes[1] // self.threads

    @property
    def products(self) -> tuple[int, int]:
        """Products per warp along rows and columns."""
        (rows, columns), (m, n) = self.sizes, self.warps
        return rows // m // 16, columns // n // 16

    def split(self, side: int) -> list[int]:
        """The factors of rows (0) or columns (1), outermost first."""
        if side and self.wide:
            return [self.warps[1], self.products[1] // 2, 4, 2, 2, 2]
        inner = [2, 8] if side == 0 else [2, 4, 2]
        return [self.warps[side], self.products[side], *inner]

    def order(self, i: Sequence[str], j: Sequence[str]) -> tuple[list[str], list[str]]:
        """Partition split loops into those over threads and those of one thread."""
        if self.wide:
            threads = [i[0], j[0], i[3], j[2]]
            return threads, [i[1], j[1], j[3], i[2], j[4], j[5]]
        return [i[0], j[0], i[3], j[3]], [i[1], j[1], i[2], j[2], j[4]]

    def share(
        self,
        s: Schedule,
        block: str,
        order: Sequence[str] = ("row", "column"),
        *,
        columns_first: bool = False,
    ) -> None:
        """Distribute the last two loops around a block over the tile's threads.

        With `columns_first`, per-column work such as a guard is hoisted out of the loop
        over rows; otherwise the other way round.
        """
        found = dict(zip(order, s.loops(block)[-2:], strict=True))
        i, j = s.split(found["row"], self.split(0)), found["column"]
        if self.wide:
            j0, j1, lane, eight = s.split(j, [*self.split(1)[:3], 8])
            threads, own = [i[0], j0, i[3], lane], [i[1], i[2], j1, eight]
        else:
            threads, own = self.order(i, s.split(j, self.split(1)))
        if columns_first:
            own = [*sorted(own[:-1], key=lambda loop: loop in i), own[-1]]
        s.reorder(*threads, *own)
        bind_threads(s, threads, own[:-1])
        s.vectorize(own[-1])


def bind_threads(s: Schedule, threads: Sequence[str], own: Sequence[str]) -> None:
    """Bind perfectly nested loops, fused, to threads; unroll those of one thread."""
    s.bind(fused(s, threads), "thread.x")
    for loop in own:
        s.unroll(loop)


def fragment_layout(
    lanes: Lanes, order: Sequence[str] = ("row", "column"), first: int = 0
) -> str:
    """Layout of sums in registers: the thread first, then its share of each product.

    Args:
        lanes: The distribution.
        order: Which of row and column the last two indices are.
        first: Number of leading batch indices.
    """
    names = [*_names(first), *({"row": "i", "column": "j"}[side] for side in order)]
    (rows, columns), (m, n) = lanes.sizes, lanes.warps
    warp = f"(i // {rows // m} * {n} + j // {columns // n})"
    products = lanes.products
    if lanes.wide:
        return (
            f"lambda {', '.join(names)}: ({warp} * {WARP} + i % 8 * 4 + j // 8 % 4, "
            f"i // 16 % {products[0]}, j // 32 % {products[1] // 2}, j // 4 % 2, "
            "j // 2 % 2, i // 8 % 2, j % 2)"
        )
    return (
        f"lambda {', '.join(names)}: ({warp} * {WARP} + i % 8 * 4 + j // 2 % 4, "
        f"i // 16 % {products[0]}, j // 16 % {products[1]}, "
        "j // 8 % 2, i // 8 % 2, j % 2)"
    )


def row_layout(lanes: Lanes) -> str:
    """Layout in registers of a number per row, with a copy for each of its lanes."""
    each = lanes.sizes[0] // lanes.warps[0]
    return (
        f"lambda i, j: (i // {each} * {lanes.warps[1] * WARP} + i % 8 * {QUAD} + j, "
        f"i // 16 % {lanes.products[0]}, i // 8 % 2)"
    )


def staged_rows(
    s: Schedule, copy: str, buffer: str, layout: str, *, threads: int, chunk: int
) -> None:
    """Copy a tile row by row, 16 bytes per thread, without bank conflicts.

    Args:
        copy: The copying block.
        buffer: The copy, in shared memory.
        layout: The layout of its elements: `swizzled` or `padded`.
        threads: Threads of the block.
        chunk: Elements in 16 bytes.
    """
    s.transform_layout(buffer, layout)
    whole = fused(s, s.loops(copy)[-2:])
    steps, thread, lane = s.split(whole, [None, threads, chunk])
    s.reorder(thread, steps, lane)
    s.bind(thread, "thread.x")
    s.unroll(steps)
    s.vectorize(lane)


def _names(first: int) -> list[str]:
    return [f"b{n}" for n in range(first)]


def columns_in_rows(length: int, chunk: int, first: int = 0) -> str:
    """Layout that stores columns as rows, 16-byte parts XOR-swizzled by the column.

    Args:
        length: Elements of a column.
        chunk: Elements in 16 bytes.
        first: Number of leading batch indices.
    """
    parts = min(length // chunk, _BANKS)
    column = f"c // {_BANKS // parts} % {parts}"
    names = ", ".join((*_names(first), "r", "c"))
    return f"lambda {names}: (c, (r // {chunk} ^ {column}) * {chunk} + r % {chunk})"


def swizzled(
    length: int, chunk: int, *, pairs: bool = False, wide: bool = False, first: int = 0
) -> str:
    """Layout with 16-byte row parts XOR-swizzled by the row: 8 rows fill all banks.

    Args:
        length: Elements of a row.
        chunk: Elements in 16 bytes.
        first: Number of leading batch indices.
        pairs: Whether a warp reads two neighbouring parts of 4 rows at once, instead of
            one part of 8.
        wide: Whether these 8 rows are two neighbours of each 8 (`Lanes.wide`).
    """
    parts = min(length // chunk, _BANKS)
    row = f"r // {_BANKS // parts} % {parts}"
    if pairs and parts == _BANKS:
        row = f"r % {parts // 2} * 2"
    if wide:
        row = "(r // 8 % 4 * 2 + r % 2)" if parts == _BANKS else f"r // 8 % {parts}"
    names = ", ".join((*_names(first), "r", "c"))
    return f"lambda {names}: (r, (c // {chunk} ^ {row}) * {chunk} + c % {chunk})"


def paneled() -> str:
    """Layout of 16-bit matrices in contiguous columns of 64, their rows swizzled."""
    return "lambda r, c: (c // 64, r, (c // 8 % 8 ^ r % 8) * 8 + c % 8)"


def padded(length: int, chunk: int) -> str:
    """Layout of rows padded by 16 bytes."""
    return f"lambda r, c: (r * {length + chunk} + c,)"
