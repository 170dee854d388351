"""Gradients of slices on a CPU: scatter into zeros without a guard per element.

    for i in range(n):            for i in parallel(n):
        for j in range(9):            for j in range(2):
            y[i, j] = ...    ->           y[i, j] = 0
                                      for j in range(4):
                                          y[i, j + 2] = dy[i, j]
                                      for j in range(3):
                                          y[i, j + 6] = 0

In each of these loops the guard is constant, and no vector reads out of bounds: masked
lanes far outside an array cost hundreds of cycles. For slices with a step of two or
three, the elements in between are unrolled.
"""

from __future__ import annotations

from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.ir.contents import free_vars
from tensorlang.ir.nodes import Binary, Compare, Const, For
from tensorlang.ir.visit import walk
from tensorlang.schedules.generic import generic
from tensorlang.schedules.plan import Plan
from tensorlang.schedules.stages import Stage, extent_of, stages
from tensorlang.schedules.streaming import loop_named, stream
from tensorlang.schedules.tiling import fused, in_lanes
from tensorlang.scheduling import Knobs, Schedule, schedule

_FEW_ROWS: Final = 4
_MOST_BETWEEN: Final = 8  # step of a slice up to which elements are unrolled


@frozen
class _SlicedRange:
    """The sliced range `begin:end` of a loop, and the loop's extent."""

    begin: int
    end: int
    extent: int

    @property
    def cut(self) -> bool:
        """Whether the range is a proper part of the loop."""
        return self.begin > 0 or self.end < self.extent


@schedule("slice_grad")
def slice_grad(s: Schedule, knobs: Knobs) -> None:
    """Partition the loops at the slice's ends, else schedule generically."""
    stage = next(iter(stages(s.function)), None)
    if stage is None or not s.attempt(_parts, Plan(s, knobs, stage)):
        generic(s, knobs)


def _parts(plan: Plan) -> None:
    """Partition the innermost loop and at most one around it."""
    s, stage = plan.s, plan.stage
    taken = {loop.var.name: _sliced_range(stage, loop) for loop in stage.loops}
    *outer, inner = taken
    around = [name for name in outer if taken[name].cut]
    cut = len(around) + taken[inner].cut
    if not cut or len(around) > 1 or 0 in map(extent_of, stage.loops):
        raise ScheduleError("there is nothing to cut, or too much")
    long = not around and all(_few(loop) for loop in stage.loops[:-1])
    step = _step(stage, stage.loops[-1])
    whole = step * plan.width if step > 1 else 1
    for piece, start in _pieces(s, inner, taken[inner], whole):
        steps = step > 1 and start == taken[inner].begin
        if not (steps and s.attempt(_between, plan, piece, step)):
            _plain(plan, piece, long=long)
    shared = outer[: outer.index(around[0])] if around else outer
    pieces = [name for at in around for name, _ in _pieces(s, at, taken[at], 1)]
    if plan.threads and not long:
        for name in [fused(s, shared)] if shared else pieces:
            s.parallel(name)


def _plain(plan: Plan, loop: str, *, long: bool) -> None:
    """Vectorize a loop; chunks of a long one go to threads."""
    if long and plan.threads:
        stream(plan.s, loop, plan.stream())
    else:
        lanes = plan.stream(registers=1).lanes
        in_lanes(plan.s, loop_named(plan.s, loop), lanes, plan.width)


def _between(plan: Plan, loop: str, step: int) -> None:
    """Vectorize over steps; the elements of each are unrolled and interleaved."""
    s = plan.s
    steps, place = s.split(loop, [None, step])
    whole, lanes = s.split(steps, [None, plan.width])
    s.reorder(whole, place, lanes)
    s.unroll(place)
    s.vectorize(lanes)


def _pieces(
    s: Schedule, loop: str, taken: _SlicedRange, whole: int
) -> list[tuple[str, int]]:
    """Partition a loop at the ends of its sliced range: parts and their starts.

    Where the range is no multiple of `whole`, its remainder becomes a part of its own.
    """
    begin, end, extent = taken.begin, taken.end, taken.extent
    points = {begin, begin + (end - begin) // whole * whole, end}
    found, rest, start = [], loop, 0
    for point in sorted(points - {0, extent}):
        part, rest = s.partition(rest, point - start)
        found.append((part, start))
        start = point
    return [*found, (rest, start)]


def _sliced_range(stage: Stage, loop: For) -> _SlicedRange:
    """The sliced range of a loop, read off its guards."""
    axis, extent = stage.axis(loop), extent_of(loop)
    begin, end = 0, extent or 0
    for node in walk(stage.block.body):
        match node:
            case Compare(op="ge", a=a, b=Const(value=bound)) if a == axis:
                begin = int(bound)
            case Compare(op="lt", a=a, b=Const(value=bound)) if a == axis:
                end = int(bound)
    return _SlicedRange(begin, end, extent or end)


def _step(stage: Stage, loop: For) -> int:
    """The step of the slice along a loop, 1 if it is too large to unroll."""
    axis = stage.axis(loop)
    for node in (each for load in stage.loads for each in walk(load)):
        match node:
            case Binary(op="floordiv", a=a, b=Const(value=by)) if axis in free_vars(a):
                return int(by) if by <= _MOST_BETWEEN else 1
    return 1


def _few(loop: For) -> bool:
    """Whether a loop is too short to distribute over threads."""
    extent = extent_of(loop)
    return extent is not None and extent <= _FEW_ROWS
