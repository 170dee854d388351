"""What goes back to where it was sliced from, on a CPU: nothing is asked at each place.

    for i in range(n):            for i in parallel(n):
        for j in range(9):            for j in range(2):
            y[i, j] = ...    ->           y[i, j] = 0
                                      for j in range(4):
                                          y[i, j + 2] = dy[i, j]
                                      for j in range(3):
                                          y[i, j + 6] = 0

The guard of a place is a constant in each of these loops, and no vector reads where
there is nothing: masked lanes far outside of an array cost hundreds of steps. Where
only each second or third place was taken, the places between are unrolled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir.contents import free_vars
from tensorlang.ir.nodes import Binary, Compare, Const, For
from tensorlang.ir.visit import walk
from tensorlang.schedules.generic import generic
from tensorlang.schedules.plan import Plan
from tensorlang.schedules.stages import Stage, extent_of, stages
from tensorlang.schedules.streaming import loop_named, stream
from tensorlang.schedules.tiling import attempt, fused, in_lanes
from tensorlang.scheduling import Knobs, Schedule, schedule

_FEW_ROWS: Final = 4
_MOST_BETWEEN: Final = 8  # places, to unroll them


@dataclass(frozen=True, slots=True)
class _Taken:
    """The places of a loop, of all, between which something was taken."""

    begin: int
    end: int
    extent: int

    @property
    def cut(self) -> bool:
        """Whether there are others."""
        return self.begin > 0 or self.end < self.extent


@schedule("slice_grad")
def slice_grad(s: Schedule, knobs: Knobs) -> None:
    """Loops without guards, where a few dimensions are cut; else as any other copy."""
    stage = next(iter(stages(s.function)), None)
    if stage is None or not attempt(s, _parts, Plan(s, knobs, stage)):
        generic(s, knobs)


def _parts(plan: Plan) -> None:
    """Cut the innermost loop and at most one around it."""
    s, stage = plan.s, plan.stage
    taken = {loop.var.name: _taken(stage, loop) for loop in stage.loops}
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
        if not (steps and attempt(s, _between, plan, piece, step)):
            _plain(plan, piece, long=long)
    shared = outer[: outer.index(around[0])] if around else outer
    pieces = [name for at in around for name, _ in _pieces(s, at, taken[at], 1)]
    if plan.threads and not long:
        for name in [fused(s, shared)] if shared else pieces:
            s.parallel(name)


def _plain(plan: Plan, loop: str, *, long: bool) -> None:
    """A loop in vectors; chunks of it to threads, where it is a long one."""
    if long and plan.threads:
        stream(plan.s, loop, plan.stream())
    else:
        lanes = plan.stream(registers=1).lanes
        in_lanes(plan.s, loop_named(plan.s, loop), lanes, plan.width)


def _between(plan: Plan, loop: str, step: int) -> None:
    """Steps in vectors; the places of each, unrolled, fill each other's gaps."""
    s = plan.s
    steps, place = s.split(loop, [None, step])
    whole, lanes = s.split(steps, [None, plan.width])
    s.reorder(whole, place, lanes)
    s.unroll(place)
    s.vectorize(lanes)


def _pieces(s: Schedule, loop: str, taken: _Taken, whole: int) -> list[tuple[str, int]]:
    """Cut a loop where it begins or ends that something was taken: parts and starts.

    Where that is no multiple of `whole`, the rest is a part of its own.
    """
    begin, end, extent = taken.begin, taken.end, taken.extent
    points = {begin, begin + (end - begin) // whole * whole, end}
    found, rest, start = [], loop, 0
    for point in sorted(points - {0, extent}):
        part, rest = s.partition(rest, point - start)
        found.append((part, start))
        start = point
    return [*found, (rest, start)]


def _taken(stage: Stage, loop: For) -> _Taken:
    """The places of a loop outside of which nothing was taken, by its guards."""
    axis, extent = stage.axis(loop), extent_of(loop)
    begin, end = 0, extent or 0
    for node in walk(stage.block.body):
        match node:
            case Compare(op="ge", a=a, b=Const(value=bound)) if a == axis:
                begin = int(bound)
            case Compare(op="lt", a=a, b=Const(value=bound)) if a == axis:
                end = int(bound)
    return _Taken(begin, end, extent or end)


def _step(stage: Stage, loop: For) -> int:
    """How far it is from one place of a loop that was taken to the next."""
    axis = stage.axis(loop)
    for node in (each for load in stage.loads for each in walk(load)):
        match node:
            case Binary(op="floordiv", a=a, b=Const(value=by)) if axis in free_vars(a):
                return int(by) if by <= _MOST_BETWEEN else 1
    return 1


def _few(loop: For) -> bool:
    """Whether it runs so seldom that threads share what is inside of it."""
    extent = extent_of(loop)
    return extent is not None and extent <= _FEW_ROWS
