"""Contractions with lanes along the reduction: both operands are read as they are.

for j_0, i_0 in parallel(...):
    sums = alloc(f32[rows, columns, lanes], scope="register")
    for k_0 in range(K // lanes):
        for i_1 in unrolled(rows), j_1 in unrolled(columns):
            for k_1 in vectorized(lanes): sums[...] += x[i, k] * w[j, k]
    y[i, j] = the sum of the lanes, and of what fills no vector

Where few rows read an operand that is contiguous along the reduction, packing it costs
more than adding up lanes.
"""

from __future__ import annotations

from tensorlang.errors import ScheduleError
from tensorlang.schedules import tiling
from tensorlang.schedules.contraction.choice import Choice
from tensorlang.schedules.contraction.space import SIDES
from tensorlang.schedules.plan import Plan
from tensorlang.schedules.stages import Stage, extent_of, tile_axes


def chosen(plan: Plan, best: Choice) -> bool:
    """Whether the knobs choose dot products, where the operands' layout allows them."""
    if not suits(plan.stage):
        return False
    along = "depth" if best.by_depth else "columns"
    return plan.knobs.choice("lanes_along", ("columns", "depth"), along) == "depth"


def suits(stage: Stage) -> bool:
    """Whether both operands are contiguous along the innermost reduction."""
    along = [load.indices[-1] for load in stage.loads]
    return along == [stage.axis(stage.driven("reduction")[-1])] * 2


def by_dots(plan: Plan, best: Choice) -> None:
    """Schedule tiles of dot products; ScheduleError if the sizes do not suit."""
    s, stage = plan.s, plan.stage
    found = tile_axes(stage)
    if found is None or not suits(stage):
        raise ScheduleError("the operands are not contiguous along the reduction")
    steps = extent_of(stage.driven("reduction")[-1])
    if steps is None or steps < plan.width:
        raise ScheduleError(
            "the reduction has an unknown length, or less than a vector"
        )
    row, column = (loop.var.name for loop in found)
    rows = plan.knobs.choice("dot_rows", SIDES, default=best.dot_rows)
    columns = plan.knobs.choice("dot_columns", SIDES, default=best.dot_columns)
    for narrow, wide in tiling.cut_rows(s, stage.name, column, _halves(columns)):
        for part, tall in tiling.cut_rows(s, narrow, row, _halves(rows)):
            _tile(plan, part, (row, column), (tall, wide))


def _halves(size: int) -> list[int]:
    """A size, its half, and so on."""
    return [size >> n for n in range(size.bit_length())]


def _tile(
    plan: Plan, block: str, names: tuple[str, str], size: tuple[int, int]
) -> None:
    """Tile one part of the results."""
    s, stage = plan.s, plan.stage
    depth = [loop.var.name for loop in stage.driven("reduction")]
    around = s.loops(block)
    i, j, *folds, k = (
        next(n for n in around if tiling.is_part(n, name)) for name in (*names, *depth)
    )
    outer = [n for n in around if n not in (i, j, *folds, k)]
    i_0, i_1 = s.split(i, [None, min(size[0], tiling.extent(s, i) or size[0])])
    j_0, j_1 = s.split(j, [None, min(size[1], tiling.extent(s, j) or size[1])])
    s.reorder(*outer, j_0, i_0, *folds, k, i_1, j_1)
    write, _ = s.cache_write(
        block, stage.output.name, "register", at=i_0, accumulate=True
    )
    steps = tiling.extent(s, k) or 0
    whole, rest = steps // plan.width * plan.width, ""
    if whole < steps:
        _, rest = tiling.cut_at(s, block, k, whole)
    _, lane = s.split(k, [None, plan.width])
    part, _ = s.rfactor(block, lane, axis=len(stage.output.shape))
    *_, k_0, lane, i_1, j_1 = s.loops(part)
    s.reorder(k_0, i_1, j_1, lane)
    for sums in filter(None, (part, block, rest)):
        *_, i_1, j_1, lane = s.loops(sums)
        if sums == rest:
            s.reorder(j_1, lane, i_1)
            i_1, j_1, lane = j_1, lane, i_1
        s.unroll(i_1)
        s.unroll(j_1)
        s.vectorize(lane)
    tiling.write_back(s, write, i_0)
    if plan.threads:
        tiling.parallelize(s, [*outer, j_0, i_0])
