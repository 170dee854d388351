"""Tile sizes of a stage: knobs, with defaults from machine and shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tensorlang.ir.dtypes import DType
from tensorlang.schedules.core import Core, core_of
from tensorlang.schedules.stages import Stage, has_long_chains
from tensorlang.schedules.streaming import Stream, stream_knobs
from tensorlang.scheduling import Knobs, Schedule

_WORTH_THREADS: Final = 1 << 15  # block instances below which one thread is faster
_PARTIALS: Final = (8, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class Plan:
    """A stage of a schedule, with the knobs that tile it."""

    s: Schedule
    knobs: Knobs
    stage: Stage

    @property
    def dtype(self) -> DType:
        """The stage's widest element type."""
        touched = [*self.stage.outputs, *(load.buffer for load in self.stage.loads)]
        return max((buffer.dtype for buffer in touched), key=lambda each: each.bits)

    @property
    def width(self) -> int:
        """Lanes of one vector register of the stage's widest element type."""
        return self._lanes(self.dtype.bits)

    @property
    def core(self) -> Core:
        """A core that runs the stage."""
        return core_of(self.s.target, self.dtype)

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
