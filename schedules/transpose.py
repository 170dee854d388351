"""Permuted dimensions on a CPU: square tiles, transposed in registers.

    for j in range(n):              for j_0_0 in parallel(...):   # rows of the result
        for i in range(m):    ->        for i_0_0 in range(...):
            y[j, i] = x[i, j]               for j_0_1 in range(4):
                                                for i_0_1 in range(4):
                                                    transpose_16x16(x[...], y[...])

Remainders of either dimension move a vector at a time, and so does a short dimension.
If the last dimension stays last, nothing needs transposing.
"""

from __future__ import annotations

from math import inf
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir.nodes import For
from tensorlang.schedules.generic import generic
from tensorlang.schedules.plan import Plan
from tensorlang.schedules.stages import Stage, extent_of, stages
from tensorlang.schedules.streaming import whole_steps
from tensorlang.schedules.tiling import cut_at, fused, is_part
from tensorlang.scheduling import Knobs, Schedule, schedule

_TILES: Final = (1, 2, 4, 8)


@schedule("transpose")
def transpose(s: Schedule, knobs: Knobs) -> None:
    """Tiles if two dimensions are long enough, else a plain copy."""
    stage = next(iter(stages(s.function)), None)
    turned = None if stage is None else _transposed_loop(stage)
    if stage is not None and turned is not None:
        plan = Plan(s, knobs, stage)
        if s.attempt(_tiles, plan, turned) or s.attempt(_short, plan, turned):
            return
    generic(s, knobs)


def _transposed_loop(stage: Stage) -> For | None:
    """The loop along the operand's last dimension, unless it is the innermost."""
    (load,) = stage.loads
    loop = next(
        (each for each in stage.loops if stage.axis(each) == load.indices[-1]), None
    )
    return None if loop is stage.loops[-1] else loop


def _tiles(plan: Plan, turned: For) -> None:
    """Whole tiles, and the remainders of both dimensions."""
    s, stage = plan.s, plan.stage
    side = min(plan.width, plan.core.registers // 2)
    around = plan.knobs.choice("tiles", _TILES, default=4)
    column, row = stage.loops[-1], turned
    for loop in (row, column):
        if (extent_of(loop) or side) < side:
            raise ScheduleError("a dimension is shorter than a tile")
    rest = _cut(s, stage.name, row.var.name, row, side)
    over = _cut(s, stage.name, column.var.name, column, side)
    outer, j, i = _loops(s, stage.name, row, column)
    j_0, j_1 = s.split(j, [None, side])
    i_0, i_1 = s.split(i, [None, side])
    j_out, j_in = s.split(j_0, [None, around])
    i_out, i_in = s.split(i_0, [None, around])
    s.reorder(*outer, j_out, i_out, j_in, i_in, i_1, j_1)
    s.tensorize(i_1, f"transpose_{side}x{side}x{stage.output.dtype}")
    s.parallel(fused(s, [*outer, j_out]))
    for block in (*rest, *over):
        _edge(plan, block, row, column, side)


def _cut(s: Schedule, block: str, name: str, loop: For, side: int) -> list[str]:
    """Split the remainder of a dimension off the block; its block, if any."""
    whole = whole_steps(s, loop.extent, side)
    if whole == loop.extent:
        return []
    around = s.loops(block)
    if around[0] != name:
        s.reorder(name, *(other for other in around if other != name))
    return cut_at(s, block, name, whole)[1:]


def _loops(
    s: Schedule, block: str, row: For, column: For
) -> tuple[list[str], str, str]:
    """The loops around a block: the outer ones, along rows, along columns."""
    around = s.loops(block)
    j = next(name for name in around if is_part(name, row.var.name))
    i = next(name for name in around if is_part(name, column.var.name))
    return [name for name in around if name not in (i, j)], j, i


def _edge(plan: Plan, block: str, row: For, column: For, lanes: int) -> None:
    """Remainder of a dimension: vectors of the result, the long loop to threads."""
    s = plan.s
    outer, j, i = _loops(s, block, row, column)
    i_0, i_1 = s.split(i, [None, lanes])
    if is_part(j, f"{row.var.name}_tail"):
        s.reorder(*outer, i_0, j, i_1)
        shared = [*outer, i_0]
    else:
        s.reorder(*outer, j, i_0, i_1)
        shared = [*outer, j]
    s.vectorize(i_1)
    s.parallel(fused(s, shared))


def _short(plan: Plan, turned: For) -> None:
    """A short dimension: innermost but for the lanes along the other one.

    Accesses of whole vectors along it combine into contiguous ones.
    """
    s, stage = plan.s, plan.stage
    column = stage.loops[-1]
    few, many = sorted((turned, column), key=lambda loop: extent_of(loop) or inf)
    length = extent_of(few)
    if length is None or length > plan.core.registers // 2:
        raise ScheduleError("no dimension is short")
    step = plan.width * plan.knobs.choice("vectors", (1, 2, 4), default=1)
    long = (extent_of(many) or step) >= step
    rest = _cut(s, stage.name, many.var.name, many, step) if long else []
    for block in (stage.name, *rest):
        outer, *pair = _loops(s, block, turned, column)
        across, along = pair if few is turned else reversed(pair)
        cut, lanes = s.split(along, [None, step])
        s.reorder(*outer, cut, across, lanes)
        s.unroll(across)
        s.vectorize(lanes)
        s.parallel(fused(s, [*outer, cut]))
