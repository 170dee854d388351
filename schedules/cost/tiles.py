"""The time of register tiles inside of loops, predicted from sizes and machine.

Convolutions are contractions whose images are read by windows: an access that is affine
in the place and the tap. An image therefore has a dimension of its own for its planes,
and fewer elements than products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil, hypot, inf
from typing import TypeVar

from tensorlang import lazy
from tensorlang.frozen import frozen
from tensorlang.schedules.contraction.space import ROWS, VECTORS
from tensorlang.schedules.cost.core import REFILL, Core
from tensorlang.schedules.cost.traffic import Loops, Operand, moved

with lazy.modules(__name__):  # predictions alone need none of it
    from tensorlang.scheduling import knobs

T = TypeVar("T")


@frozen
class Nest:
    """Register tiles in loops, of which threads share some."""

    busy: float  # cycles of arithmetic of all tiles
    chunks: float  # iterations that are shared among threads
    loops: Loops  # loops around a tile, the outermost first
    # extents of a tile by dimension, those of the reduction included
    tile: Mapping[str, float]
    operands: tuple[Operand, ...]  # what the tiles read and write

    def alone(self, core: Core) -> float:
        """Cycles of one thread that computes all tiles."""
        return hypot(self.busy, *self._moving(core))

    def cycles(self, core: Core) -> float:
        """Cycles of the slowest thread."""
        return shared(core, self.alone(core), self.chunks)

    def terms(self, core: Core) -> dict[str, float]:
        """What the cycles are made of, by name."""
        alone = self.alone(core)
        apart = self.cycles(core) < alone
        share = ceil(self.chunks / core.threads) / self.chunks if apart else 1.0
        into = (f"into L{level.cache.level}" for level in core.levels)
        return {
            "arithmetic": share * self.busy,
            **dict(zip(into, (share * m for m in self._moving(core)), strict=True)),
            "handing over": core.handover if apart else 0.0,
        }

    def _moving(self, core: Core) -> list[float]:
        """Cycles of what comes into each cache."""
        came = moved(self.loops, self.tile, self.operands, core.levels)
        return [sum(b) / level.rate for b, level in zip(came, core.levels, strict=True)]


def shared(core: Core, cycles: float, chunks: float) -> float:
    """Cycles of the slowest of all threads, or of one if that is faster."""
    share = ceil(chunks / core.threads) / chunks
    return min(cycles, cycles * share + core.handover)


def tile_cycles(
    core: Core, rows: int, vectors: int, steps: int, *, crossing: bool = False
) -> float:
    """Cycles of a register tile, the write-back of its sums included.

    Args:
        rows: Its rows, whose factors are broadcast.
        steps: Steps of the reduction.
        crossing: Whether vectors need not be aligned to lines of the cache.
    """
    loads = rows + vectors * (core.crossing if crossing else 1.0)
    ends = REFILL + core.latency + rows * vectors
    return steps * core.tile(rows, vectors, loads) + ends


def tiles_cycles(
    core: Core,
    rows: int,
    vectors: int,
    steps: int,
    tile: tuple[int, int],
    *,
    crossing: bool = False,
) -> float:
    """Cycles of so many rows by vectors in register tiles, smaller ones at the ends."""
    (r, v), total = tile, 0.0
    for tall, height in ((rows // r, r), (1, rows % r)):
        for wide, width in ((vectors // v, v), (1, vectors % v)):
            if tall * height * wide * width:
                one = tile_cycles(core, height, width, steps, crossing=crossing)
                total += tall * wide * one
    return total


def tiled(
    core: Core,
    rows: int,
    vectors: int,
    steps: int,
    heights: Sequence[int] = ROWS,
    *,
    crossing: bool = False,
) -> tuple[float, tuple[int, int]]:
    """Cycles of so many rows by vectors, and their fastest register tile.

    Args:
        rows: Rows of the result.
        vectors: Its vectors of columns.
        steps: Steps of the reduction.
        heights: The rows that a tile may have.
        crossing: Whether vectors need not be aligned to lines of the cache.
    """
    fits = (
        (r, v)
        for r in heights
        for v in VECTORS
        if r <= rows and v <= vectors and core.holds(r, v)
    )
    return min(
        (tiles_cycles(core, rows, vectors, steps, tile, crossing=crossing), tile)
        for tile in fits
    )


def compared(
    core: Core,
    candidates: Iterable[T],
    nest_of: Callable[[T], Nest],
    knobs_of: Callable[[T], Mapping[str, knobs.Value]],
) -> Iterator[knobs.Candidate]:
    """What `fastest` compares, with the knobs of each."""
    for candidate in candidates:
        nest = nest_of(candidate)
        yield knobs.Candidate(knobs_of(candidate), nest.cycles(core), nest.terms(core))


def fastest(
    core: Core, candidates: Iterable[T], nest_of: Callable[[T], Nest]
) -> T | None:
    """The candidate that takes the fewest cycles; None if there are none.

    What arithmetic alone rules out is not looked at further.
    """
    nests = [(candidate, nest_of(candidate)) for candidate in candidates]
    nests.sort(key=lambda each: shared(core, each[1].busy, each[1].chunks))
    best, least = None, inf
    for candidate, nest in nests:
        if shared(core, nest.busy, nest.chunks) >= least:
            break
        if (cycles := nest.cycles(core)) < least:
            best, least = candidate, cycles
    return best
