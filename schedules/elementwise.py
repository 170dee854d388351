"""Schedules of injective stages on a CPU, from the most specific to the simplest."""

from __future__ import annotations

from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir.contents import loops
from tensorlang.ir.nodes import Compare, Const, For
from tensorlang.ir.visit import walk
from tensorlang.schedules.plan import Plan
from tensorlang.schedules.stages import Stage, extent_of, is_elementwise
from tensorlang.schedules.streaming import loop_named, stream, whole_steps
from tensorlang.schedules.tiling import extent, fused, in_lanes, is_part, parallelize

_FEW_ROWS: Final = 4
_MOST_CASES: Final = 8


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


def cases(plan: Plan) -> None:
    """Unroll a short loop whose iterations are told apart, inside of vectors.

    No iteration then computes what only others need, and what they share is computed
    once.
    """
    s, stage = plan.s, plan.stage
    short = [loop for loop in stage.loops[:-1] if _has_cases(stage, loop)]
    if not short:
        raise ScheduleError("no short loop has iterations that are told apart")
    *outer, inner = (loop.var.name for loop in stage.loops if loop not in short)
    names = [loop.var.name for loop in short]
    s.reorder(*outer, inner, *names)
    length = loop_named(s, inner).extent
    lanes = min(plan.width, extent(s, inner) or plan.width)
    whole = whole_steps(s, length, lanes)
    chunks = []
    for part in (inner,) if whole == length else s.partition(inner, whole):
        chunk, lane = s.split(part, [None, lanes])
        told = [
            loop.var.name
            for loop in loops(loop_named(s, chunk).body)
            if any(is_part(loop.var.name, name) for name in names)
        ]
        s.reorder(chunk, *told, lane)
        for loop in told:
            s.unroll(loop)
        s.vectorize(lane)
        chunks.append(chunk)
    if plan.threads:
        parallelize(s, outer or chunks[:1])


def _has_cases(stage: Stage, loop: For) -> bool:
    """Whether a loop is short, and its axis is compared with a number."""
    count, axis = extent_of(loop), stage.axis(loop)
    return (
        count is not None
        and count <= _MOST_CASES
        and any(
            isinstance(node, Compare)
            and node.op == "eq"
            and axis in (node.a, node.b)
            and any(isinstance(side, Const) for side in (node.a, node.b))
            for node in walk(stage.block.body)
        )
    )


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
