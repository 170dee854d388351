"""Tile sizes of a stage: knobs, with defaults from machine and shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tensorlang.schedules.stages import Stage, has_long_chains
from tensorlang.schedules.streaming import Stream, stream_knobs
from tensorlang.scheduling import Knobs, Schedule

_WORTH_THREADS: Final = 1 << 15  # block instances below which one thread is faster
_PARTIALS: Final = (8, 16, 32, 64, 128)
_ROWS: Final = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)
_VECTORS: Final = (1, 2, 3, 4)
_USUAL_SUMS: Final = 24  # in 32 registers: measured best; 26 and 28 come close
_MANY_REGISTERS: Final = 32
_HIDING: Final = 8  # sums that hide the latency of a fused multiply-add


@dataclass(frozen=True, slots=True)
class Tile:
    """Sizes of a register tile, and whether its nest is parallel."""

    rows: int
    vectors: int
    lanes: int
    parallel: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """A stage of a schedule, with the knobs that tile it."""

    s: Schedule
    knobs: Knobs
    stage: Stage

    @property
    def width(self) -> int:
        """Lanes of one vector register of the stage's widest element type."""
        touched = [load.buffer for load in self.stage.loads]
        bits = max(buffer.dtype.bits for buffer in (*self.stage.outputs, *touched))
        return self._lanes(bits)

    def _lanes(self, bits: int) -> int:
        return self.s.target.lanes(bits) if self.s.target else 512 // max(bits, 8)

    @property
    def threads(self) -> bool:
        """Whether there is enough work for more than one thread."""
        return self.stage.work is None or self.stage.work >= _WORTH_THREADS

    def stream(self, registers: int = 2) -> Stream:
        """The knobs of an elementwise stage: a few registers side by side.

        At least four registers where the latency of a long dependency chain must be
        hidden.
        """
        lanes = registers * self.width
        if has_long_chains(self.stage):
            lanes = max(lanes, 4 * min(self.width, self._lanes(32)))
        return stream_knobs(self.knobs, lanes=lanes)

    def partials(self) -> int:
        """The knob of a reduction: partial results that hide the latency of adding."""
        default = min(_PARTIALS, key=lambda lanes: abs(lanes - 4 * self.width))
        return self.knobs.choice("partials", _PARTIALS, default=default)

    def tile(self, rows: int | None, columns: int | None) -> Tile:
        """The knobs of a contraction: sums that fill the vector registers.

        Args:
            rows: Number of rows, if known.
            columns: Number of columns, if known.
        """
        registers = self.s.target.vector_registers if self.s.target else 16
        vectors = _widest(columns, self.width, registers)
        tall = _tallest(rows, vectors, registers)
        return Tile(
            self.knobs.choice("rows", _ROWS, default=tall),
            self.knobs.choice("vectors", _VECTORS, default=vectors),
            self.width,
            self.threads,
        )


def _widest(columns: int | None, lanes: int, registers: int) -> int:
    """Vectors of columns in a tile: few rows of four rather than many of two.

    Rows whose stride is a multiple of a page share twelve ways of the L1 cache, or
    fewer with another hardware thread on the core: six fit, twelve do not.
    """
    if columns is None or registers < _MANY_REGISTERS:
        return 1 if columns is not None and columns <= lanes else 2
    return min(max(columns // lanes, 1), _VECTORS[-1])


def _tallest(rows: int | None, vectors: int, registers: int) -> int:
    """Rows of a tile: as many as registers hold, with a small remainder.

    Besides the sums and one vector of columns per `vectors`, two registers stay free
    for broadcasts. A remainder too short to hide the latency of an addition costs as
    much as one that does.
    """
    most = min((registers - vectors - 2) // vectors, _ROWS[-1])
    usual = max(_USUAL_SUMS // vectors, 1)
    if rows is None:
        return min(most, usual)
    if rows <= most:
        return max(rows, 1)

    def cost(tall: int) -> tuple[float, int]:
        rest = rows % tall
        steps = rows - rest + (max(rest, _HIDING // vectors) if rest else 0)
        return steps * (1 + 0.01 * max(tall - usual, 0)), -tall

    return min(range(max(most - 3, 1), most + 1), key=cost)
