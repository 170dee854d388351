"""A block's tile among its threads: each has sums of neighbouring rows and columns.

    row    = (warp row, 2, 2, own)
    column = (warp column, 8, own)

A warp is 4 by 8 threads, in pairs that have other rows and the same columns. So of what
the 16 lanes of half a warp read at once, 16 bytes each, either neighbours or every
other two are the same, and they are served in one turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from tensorlang.schedules.simt.fragments import over_threads
from tensorlang.scheduling import Schedule

WIDE: Final = 4  # numbers of one access


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """What a block's threads have sums of.

    Attributes:
        rows: Of one thread, a multiple of 4.
        columns: Of one thread, too.
        warps: Of the block, along rows; there are 2 along columns.
    """

    rows: int
    columns: int
    warps: int

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
        """Of loops that were split so, those of the threads, and those of one."""
        return [i[0], j[0], i[1], j[1], i[2]], [*i[3:], *j[2:]]

    def share(self, s: Schedule, block: str, order: Sequence[str]) -> None:
        """Share out a nest over the tile: the last two loops around a block."""
        found = dict(zip(order, s.loops(block)[-2:], strict=True))
        i, j = (
            s.split(found[name], self.split(side))
            for side, name in enumerate(("row", "column"))
        )
        threads, own = self.order(i, j)
        s.reorder(*threads, *own)
        over_threads(s, threads, own[:-1])
        s.vectorize(own[-1])

    def layout(self, order: Sequence[str], ndim: int) -> str:
        """Sums in registers: the thread first, then its rows and columns."""
        names = [*(f"b{n}" for n in range(ndim - 2)), *(name[0] for name in order)]
        r, c = self.rows, self.columns
        warp = f"(r // {4 * r} * 2 + c // {8 * c})"
        lane = f"r // {2 * r} % 2 * 16 + c // {c} % 8 * 2 + r // {r} % 2"
        own = f"r % {r}, c % {c}"
        return f"lambda {', '.join(names)}: ({warp} * 32 + {lane}, {own})"
