"""The cheapest register tiles of convolutions on flattened images, by the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil
from typing import Final

from tensorlang.frozen import frozen
from tensorlang.schedules.convolution.tiles import Tile
from tensorlang.schedules.cost.core import Core
from tensorlang.schedules.cost.tiles import Nest, fastest, tile_cycles
from tensorlang.schedules.cost.tiles import compared as tiles_compared
from tensorlang.schedules.cost.traffic import Operand
from tensorlang.schedules.tiling import divisors
from tensorlang.scheduling.knobs import Candidate

ROWS: Final = tuple(range(1, 15))
VECTORS: Final = (1, 2, 3, 4, 5, 6, 8)


@frozen
class Work:
    """Problem size of one image as tiling sees it."""

    outputs: int  # output channels of a group; 1 for depthwise convolutions
    # planes of an image as large as the result, in all channels and phases
    planes: float
    lines: int  # lines of the result, per phase
    pitch: int  # elements from line to line in the sums
    last: int  # elements of a line that are results
    parts: Sequence[tuple[int, int]]  # phases and products per sum, of each part
    units: int  # units of work besides those over lines and outputs
    bytes: int  # bytes of an element
    whole: bool = True  # whether lines can be divided over units
    scratch: bool = True  # whether the results are extracted from sums in memory
    # whether units of the same pixels follow each other, instead of those of an output
    pixels_first: bool = False

    @property
    def cuts(self) -> list[int]:
        """Divisors of the number of lines whose span exceeds one element, if any."""
        found = divisors(self.lines) if self.whole else [self.lines]
        return [n for n in found if self.span(n) > 1] or found

    @property
    def tile_rows(self) -> list[int]:
        """Outputs of a tile: divisors, or any number where there are none."""
        return [n for n in ROWS if self.indivisible or self.outputs % n == 0]

    @property
    def indivisible(self) -> bool:
        """Whether no tile of several outputs divides their number."""
        return self.outputs > ROWS[-1] and all(self.outputs % n for n in ROWS[1:])

    def unit_outputs(self, rows: int) -> int:
        """Outputs that a unit of work computes, in tiles of this many."""
        return self.outputs if self.outputs % rows else rows

    def span(self, lines: int) -> int:
        """Elements from the first to the last result of this many lines."""
        return (lines - 1) * self.pitch + self.last

    def nest(self, core: Core, tile: Tile, lines: int) -> Nest:
        """The loops of all units, each of some outputs and lines.

        Outputs inside and outside of a unit are dimensions `m` and `o`, pixels `n` and
        `p`, phases `t`; `c` are planes, and `k` is the reduction.
        """
        span, many = self.span(lines), self.unit_outputs(tile.rows)
        wide = tile.vectors * tile.lanes
        cuts, groups = self.lines / lines, self.outputs / many
        chunks = self.units * cuts * groups
        if not self.scratch:  # tiles are units of their own
            chunks *= ceil(span / wide)
        phases = sum(count for count, _ in self.parts)
        steps = sum(count * products for count, products in self.parts)
        scratch = Operand("tmn", "n", 0, self.bytes, moves=3)
        outputs = ("o", self.units * groups)
        pixels = ("p", cuts), ("m", many / tile.rows), ("n", span / wide)
        return Nest(
            self.units * cuts * groups * self._unit(core, tile, span, many),
            chunks,
            (*pixels, outputs) if self.pixels_first else (outputs, *pixels),
            {"m": tile.rows, "n": wide, "k": steps}
            | {"c": self.planes, "t": phases, "o": 1.0, "p": 1.0},
            (
                Operand("omk", "k", steps * self.bytes, self.bytes),
                Operand("cpn", "n", 0, self.bytes),
                Operand("otmpn", "n", 0, self.bytes, moves=2),
            )
            + (scratch,) * self.scratch,
        )

    def _unit(self, core: Core, tile: Tile, span: int, many: int) -> float:
        """Cycles of the arithmetic of a unit of work."""
        vectors, left = divmod(-(-span // tile.lanes), tile.vectors)
        whole, rest = divmod(many, tile.rows)
        return sum(
            tall * wide * phases * tile_cycles(core, *size, steps, crossing=True)
            for phases, steps in self.parts
            for tall, rows in ((whole, tile.rows), (1, rest))
            for wide, size in ((vectors, (rows, tile.vectors)), (1, (rows, left)))
            if 0 not in size
        )


def tiles(work: Work, core: Core) -> list[tuple[Tile, int]]:
    """Tiles that fit the registers, with the numbers of lines per unit of work."""
    return [
        (Tile(rows, vectors, core.lanes), lines)
        for rows in work.tile_rows
        for vectors in VECTORS
        if core.holds(rows, vectors)
        for lines in reversed(work.cuts)
    ]


def choose(work: Work, core: Core) -> tuple[Tile, int]:
    """The fastest tile, and the number of lines per unit of work."""
    possible = tiles(work, core)
    found = fastest(core, possible, lambda each: work.nest(core, *each))
    return found or possible[0]


def compared(work: Work, core: Core) -> Iterator[Candidate]:
    """What `choose` compares."""
    return tiles_compared(
        core,
        tiles(work, core),
        lambda each: work.nest(core, *each),
        lambda each: {
            "rows": each[0].rows,
            "vectors": each[0].vectors,
            "lines": each[1],
        },
    )
