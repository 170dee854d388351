"""Distribution of a block's tile over threads: sums of neighbouring rows and columns.

    row    = (warp row, 2, 2, own)
    column = (warp column, 8, own)

A warp is 4 x 8 threads, in pairs with different rows and the same columns. So of the
16-byte reads of a half warp's 16 lanes, either neighbouring or alternate ones have the
same address, and they are served in one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from tensorlang.frozen import frozen
from tensorlang.schedules.simt.fragments import bind_threads
from tensorlang.scheduling import Schedule

WIDE: Final = 4  # elements of one access


@frozen
class RegisterTile:
    """The sums of a block's threads."""

    rows: int  # rows per thread, a multiple of 4
    columns: int  # columns per thread, a multiple of 4
    warps: int  # warps of the block along rows; there are 2 along columns

    @property
    def sides(self) -> tuple[int, int]:
        """Threads along rows and along columns."""
        return 4 * self.warps, 16

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return prod(self.sides)

    @property
    def sizes(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        return self.sides[0] * self.rows, self.sides[1] * self.columns

    def split(self, side: int) -> list[int]:
        """The factors of rows (0) or columns (1), outermost first."""
        own = (self.rows, self.columns)[side]
        return [*((self.warps, 2, 2), (2, 8))[side], own // WIDE, WIDE]

    def order(self, i: Sequence[str], j: Sequence[str]) -> tuple[list[str], list[str]]:
        """Partition split loops into those over threads and those of one thread."""
        return [i[0], j[0], i[1], j[1], i[2]], [*i[3:], *j[2:]]

    def share(self, s: Schedule, block: str, order: Sequence[str]) -> None:
        """Distribute the last two loops around a block over the tile's threads."""
        found = dict(zip(order, s.loops(block)[-2:], strict=True))
        i, j = (
            s.split(found[name], self.split(side))
            for side, name in enumerate(("row", "column"))
        )
        threads, own = self.order(i, j)
        s.reorder(*threads, *own)
        bind_threads(s, threads, own[:-1])
        s.vectorize(own[-1])

    def layout(self, order: Sequence[str], ndim: int) -> str:
        """Layout of sums in registers: the thread first, then its rows and columns."""
        names = [*(f"b{n}" for n in range(ndim - 2)), *(name[0] for name in order)]
        r, c = self.rows, self.columns
        warp = f"(r // {4 * r} * 2 + c // {8 * c})"
        lane = f"r // {2 * r} % 2 * 16 + c // {c} % 8 * 2 + r // {r} % 2"
        own = f"r % {r}, c % {c}"
        return f"lambda {', '.join(names)}: ({warp} * 32 + {lane}, {own})"
