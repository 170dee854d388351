"""Schedules of injective stages on a CPU, from the most specific to the simplest."""

from __future__ import annotations

from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.schedules.plan import Plan
from tensorlang.schedules.stages import extent_of, is_elementwise
from tensorlang.schedules.streaming import loop_named, stream
from tensorlang.schedules.tiling import fused, in_lanes

_FEW_ROWS: Final = 4


def flat(plan: Plan) -> None:
    """Fuse all loops: lanes to vectors, and chunks to threads if there are many."""
    if not is_elementwise(plan.stage):
        raise ScheduleError("operands of several shapes have no common flat index")
    loop = fused(plan.s, [loop.var.name for loop in plan.stage.loops])
    how = plan.stream()
    if plan.threads:
        stream(plan.s, loop, how)
    else:
        in_lanes(plan.s, loop_named(plan.s, loop), how.lanes, plan.width)


def long_rows(plan: Plan) -> None:
    """Stream the innermost loop where the loops around it are short."""
    *outer, inner = plan.stage.loops
    around = [extent_of(loop) for loop in outer]
    if not plan.threads or not all(n is not None and n <= _FEW_ROWS for n in around):
        raise ScheduleError("the outer loops are long enough to be parallel")
    stream(plan.s, inner.var.name, plan.stream())


def vector_rows(plan: Plan) -> None:
    """Rows to threads, innermost loop to vectors; short rows use few lanes."""
    *outer, inner = plan.stage.loops
    lanes = plan.stream(registers=1).lanes
    rows = fused(plan.s, [loop.var.name for loop in outer]) if outer else ""
    in_lanes(plan.s, inner, lanes, plan.width)
    if rows and plan.threads:
        plan.s.parallel(rows)


def masked_lanes(plan: Plan) -> None:
    """Masked vectors of one register, on one thread."""
    loop = plan.stage.loops[-1]
    lanes = min(plan.width, extent_of(loop) or plan.width)
    _, lane = plan.s.split(loop.var.name, [None, lanes])
    plan.s.vectorize(lane)


def shared(plan: Plan) -> None:
    """Parallelize the outermost loop only."""
    if plan.threads:
        plan.s.parallel(plan.stage.loops[0].var.name)
