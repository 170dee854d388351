"""Tile sizes of a stage: knobs, with defaults from machine and shape."""

from __future__ import annotations

from math import hypot, prod
from typing import Final

from tensorlang.frozen import frozen
from tensorlang.ir.dtypes import DType, f32
from tensorlang.ir.nodes import Buffer, Const
from tensorlang.schedules.cost.core import Core, core_of
from tensorlang.schedules.cost.traffic import missed
from tensorlang.schedules.stages import Stage, has_long_chains, steps_of
from tensorlang.schedules.streaming import Stream, stream_knobs
from tensorlang.scheduling import Knobs, Schedule

_PARTIALS: Final = (8, 16, 32, 64, 128)


@frozen
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
        return self.core.lanes

    @property
    def core(self) -> Core:
        """A core that runs the stage."""
        return core_of(self.s.target, self.dtype)

    @property
    def threads(self) -> bool:
        """Whether there is enough work for more than one thread."""
        work = self.stage.work
        return work is None or self.core.worth_threads(self._cycles(work))

    def _cycles(self, work: int) -> float:
        """Cycles of a known number of block instances, predicted."""
        core, stage = self.core, self.stage
        buffers = {*stage.outputs, *(load.buffer for load in stage.loads)}
        sizes = [(_elements(each, work), each.dtype.bytes) for each in buffers]
        bytes_ = sum(count * size for count, size in sizes)
        steps = max(steps_of(stage.block), len(buffers))
        busy = work / core.lanes * steps / core.products
        moving = (
            missed(bytes_, level.capacity) * bytes_ / level.rate
            for level in core.levels
        )
        return hypot(busy, *moving)

    def stream(self, registers: int = 2) -> Stream:
        """The knobs of an elementwise stage: a few registers side by side.

        At least four registers where the latency of a long dependency chain must be
        hidden.
        """
        lanes = registers * self.width
        if has_long_chains(self.stage):
            lanes = max(lanes, 4 * min(self.width, core_of(self.s.target, f32).lanes))
        return stream_knobs(self.knobs, self.core, lanes)

    def partials(self) -> int:
        """The knob of a reduction: partial results that hide the latency of adding."""
        default = min(_PARTIALS, key=lambda lanes: abs(lanes - 4 * self.width))
        return self.knobs.choice(
            "partials",
            _PARTIALS,
            default=default,
            why=f"4 vectors of {self.width} hide the latency of adding",
        )


def _elements(buffer: Buffer, work: int) -> int:
    """Elements of a buffer that so many instances touch."""
    known = [int(n.value) for n in buffer.shape if isinstance(n, Const)]
    return min(prod(known), work) if len(known) == buffer.ndim else work
