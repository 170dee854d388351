"""A block's tile among the lanes of its warps, as tensor cores leave their results.

A product of 16 by 16 is spread over 32 lanes: rows in 2 times 8, columns in 2 times 4
times 2. The lane is the 8 and the 4; the three 2s are its own sums.

    row    = (warp row, product, half, lane // 4)
    column = (warp column, product, half, lane % 4, 2)

Where the operand of the columns lies along steps, two products may take turns in 32
columns. Of these a lane has eight neighbours then, which it stores at once:

    column = (warp column, two products, lane % 4, product, half, 2)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tensorlang.schedules.tiling import fused
from tensorlang.scheduling import Schedule

WARP: Final = 32
_BANKS: Final = 8  # parts of 16 bytes before the banks begin again


@dataclass(frozen=True, slots=True)
class Lanes:
    """A tile of rows and columns, and the warps along each.

    Attributes:
        sizes: Rows and columns.
        warps: Along each.
        wide: Whether a lane has eight neighbouring columns, of two products.
    """

    sizes: tuple[int, int]
    warps: tuple[int, int]
    wide: bool = False

    @property
    def threads(self) -> int:
        """Threads of the block."""
        return WARP * self.warps[0] * self.warps[1]

    @property
    def sums(self) -> int:
        """Sums of one thread."""
        return self.sizes[0] * self.sizes[1] // self.threads

    @property
    def products(self) -> tuple[int, int]:
        """Products of one warp along rows and columns."""
        (rows, columns), (m, n) = self.sizes, self.warps
        return rows // m // 16, columns // n // 16

    def split(self, side: int) -> list[int]:
        """The factors of rows (0) or columns (1), outermost first."""
        if side and self.wide:
            return [self.warps[1], self.products[1] // 2, 4, 2, 2, 2]
        inner = [2, 8] if side == 0 else [2, 4, 2]
        return [self.warps[side], self.products[side], *inner]

    def order(self, i: Sequence[str], j: Sequence[str]) -> tuple[list[str], list[str]]:
        """Of loops that were split so, those of the threads, and those of one."""
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
        """Share out a nest over the tile: the last two loops around a block.

        `columns_first`: what is done for each column, as a guard, is done around what
        is done for each row of it, and not the other way about.
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
        over_threads(s, threads, own[:-1])
        s.vectorize(own[-1])


def over_threads(s: Schedule, threads: Sequence[str], own: Sequence[str]) -> None:
    """Bind perfectly nested loops, as one, to threads; those of one are written out."""
    s.bind(fused(s, threads), "thread.x")
    for loop in own:
        s.unroll(loop)


def fragment_layout(
    lanes: Lanes, order: Sequence[str] = ("row", "column"), first: int = 0
) -> str:
    """Sums in registers: the thread first, then what it has of each product.

    Args:
        lanes: Whose they are.
        order: Which of row and column the last two indices are.
        first: How many indices stand before, of a batch.
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


def staged_rows(
    s: Schedule, copy: str, buffer: str, layout: str, *, threads: int, chunk: int
) -> None:
    """A tile copied in rows, 16 bytes a thread, into places of their own in the banks.

    Args:
        s: The schedule.
        copy: The block that copies.
        buffer: The copy, in shared memory.
        layout: Where its elements lie: `swizzled`, or `padded`.
        threads: Of the block.
        chunk: How many of them are 16 bytes.
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
    """Columns that lie as rows, their parts exclusive-or'd with the column's number.

    Args:
        length: Of a column.
        chunk: The numbers of one part, 16 bytes.
        first: How many indices stand before, of a batch.
    """
    parts = min(length // chunk, _BANKS)
    column = f"c // {_BANKS // parts} % {parts}"
    names = ", ".join((*_names(first), "r", "c"))
    return f"lambda {names}: (c, (r // {chunk} ^ {column}) * {chunk} + r % {chunk})"


def swizzled(
    length: int, chunk: int, *, pairs: bool = False, wide: bool = False, first: int = 0
) -> str:
    """Parts of a row, exclusive-or'd with the row's number: 8 rows fill all banks.

    Args:
        length: Of a row.
        chunk: The numbers of one part, 16 bytes.
        first: How many indices stand before, of a batch.
        pairs: Whether a warp reads two neighbouring parts of 4 rows at once, and not
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


def padded(length: int, chunk: int) -> str:
    """Rows that are one 16-byte part longer than their numbers."""
    return f"lambda r, c: (r * {length + chunk} + c,)"
