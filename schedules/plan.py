"""The sizes that a stage is cut by: knobs, with defaults from machine and shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tensorlang.schedules.stages import Stage
from tensorlang.schedules.streaming import Stream, stream_knobs
from tensorlang.scheduling import Knobs, Schedule

_WORTH_THREADS: Final = 1 << 15  # block instances, below which one thread is faster
_PARTIALS: Final = (8, 16, 32, 64, 128)
_ROWS: Final = (1, 2, 4, 6, 8, 10, 12, 14)
_VECTORS: Final = (1, 2, 3, 4)
_MANY_REGISTERS: Final = 32


@dataclass(frozen=True, slots=True)
class Tile:
    """Sizes of a register tile, and whether its nest is shared among threads."""

    rows: int
    vectors: int
    lanes: int
    parallel: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """A stage of a schedule, and what it may be cut by."""

    s: Schedule
    knobs: Knobs
    stage: Stage

    @property
    def width(self) -> int:
        """Lanes of one vector register of the stage's widest elements."""
        touched = [load.buffer for load in self.stage.loads]
        bits = max(buffer.dtype.bits for buffer in (*self.stage.outputs, *touched))
        return self.s.target.lanes(bits) if self.s.target else 512 // max(bits, 8)

    @property
    def threads(self) -> bool:
        """Whether there is enough to do for more than one thread."""
        return self.stage.work is None or self.stage.work >= _WORTH_THREADS

    def stream(self) -> Stream:
        """The knobs of an elementwise stage: two registers side by side."""
        return stream_knobs(self.knobs, lanes=2 * self.width)

    def partials(self) -> int:
        """The knob of a reduction: partial results that hide an addition's latency."""
        default = min(_PARTIALS, key=lambda lanes: abs(lanes - 4 * self.width))
        return self.knobs.choice("partials", _PARTIALS, default=default)

    def tile(self) -> Tile:
        """The knobs of a contraction: sums that fill the vector registers."""
        registers = self.s.target.vector_registers if self.s.target else 16
        many = registers >= _MANY_REGISTERS
        rows = self.knobs.choice("rows", _ROWS, default=12 if many else 6)
        vectors = self.knobs.choice("vectors", _VECTORS, default=2)
        return Tile(rows, vectors, self.width, self.threads)
