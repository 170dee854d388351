"""The cost of convolutions on flattened images, and the cheapest register tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tensorlang.schedules.conv_tiles import Tile, tile_cost
from tensorlang.schedules.tiling import divisors

_MOST_ROWS: Final = 14
VECTORS: Final = (1, 2, 3, 4, 5, 6, 8)
ENOUGH_UNITS: Final = 8
_SCRATCH: Final = 40 << 10  # bytes of a phase's sums in a thread's working set


@dataclass(frozen=True, slots=True)
class Work:
    """Problem size as tiling sees it.

    Attributes:
        outputs: Output channels of a group; 1 for depthwise convolutions.
        lines: Lines of the result, per phase.
        pitch: Elements from line to line in the sums.
        last: Elements of a line that are results.
        parts: Phases and products per sum, of each part.
        units: Units of work besides those over lines and outputs.
        whole: Whether lines can be divided over units.
    """

    outputs: int
    lines: int
    pitch: int
    last: int
    parts: Sequence[tuple[int, int]]
    units: int
    whole: bool = True

    @property
    def cuts(self) -> list[int]:
        """Divisors of the number of lines whose span exceeds one element, if any."""
        found = divisors(self.lines) if self.whole else [self.lines]
        return [n for n in found if self.span(n) > 1] or found

    @property
    def tile_rows(self) -> list[int]:
        """Outputs of a tile: divisors, or any number where there are none."""
        sizes = range(1, _MOST_ROWS + 1)
        return [n for n in sizes if self.indivisible or self.outputs % n == 0]

    @property
    def indivisible(self) -> bool:
        """Whether no tile of several outputs divides their number."""
        sizes = range(2, _MOST_ROWS + 1)
        return self.outputs > _MOST_ROWS and all(self.outputs % n for n in sizes)

    def unit_outputs(self, rows: int) -> int:
        """Outputs that a unit of work computes, in tiles of this many."""
        return self.outputs if self.outputs % rows else rows

    def span(self, lines: int) -> int:
        """Elements from the first to the last result of this many lines."""
        return (lines - 1) * self.pitch + self.last

    def cost(self, tile: Tile, lines: int) -> float:
        """Half cycles of all units of work.

        Args:
            tile: The register tile.
            lines: Lines per unit.
        """
        span, many = self.span(lines), self.unit_outputs(tile.rows)
        count = self.lines // lines * (self.outputs // many)
        few = 1.0 if count * self.units >= ENOUGH_UNITS else 1.1
        large = 1.05 if 4 * many * span > _SCRATCH else 1.0
        whole, rest = divmod(many, tile.rows)
        sizes = [(whole, tile), (1, replace(tile, rows=rest))][: 1 + (rest > 0)]
        each = sum(
            number * phases * tile_cost(span, size, steps)
            for phases, steps in self.parts
            for number, size in sizes
        )
        return count * (each + 200) * few * large


def choose(work: Work, lanes: int, registers: int) -> tuple[Tile, int]:
    """The cheapest tile, and the number of lines per unit of work.

    Args:
        work: The problem size.
        lanes: Elements of a vector register.
        registers: Number of vector registers.
    """
    possible = [
        (Tile(rows, vectors, lanes), lines)
        for rows in work.tile_rows
        for vectors in VECTORS
        for lines in work.cuts
        if (rows + 1) * vectors + 2 <= registers
    ]
    return min(possible, key=lambda choice: (work.cost(*choice), -choice[1]))
