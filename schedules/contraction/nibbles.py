"""Few rows times 4-bit weights: lanes along the bytes, both halves of each.

for j_0 in parallel(columns // 8):
    sums = alloc(f32[rows, 8, 16], scope="register")
    for g, k_0 in range(groups), range(bytes // 16):
        for i_1 in unrolled(rows), j_1 in unrolled(8), h in unrolled(2):
            for lane in vectorized(16): sums[...] += x[h, k] * half(w[j, k], h) * scale
    y = the sum of the lanes

The activations are stored by halves first, so that no vector is shuffled.
"""

from __future__ import annotations

from tensorlang.errors import ScheduleError
from tensorlang.schedules import tiling
from tensorlang.schedules.contraction.dot_groups import sides
from tensorlang.schedules.contraction.space import SIDES
from tensorlang.schedules.generic import generic
from tensorlang.schedules.plan import Plan
from tensorlang.schedules.stages import Stage, extent_of, stages, tile_axes
from tensorlang.scheduling import Knobs, Schedule, schedule


@schedule("dense_int4")
def dense_int4(s: Schedule, knobs: Knobs) -> None:
    """Schedule products by bytes, if there are any, and all else by its kind."""
    for stage in list(stages(s.function)):
        if tile_axes(stage) and len(stage.driven("reduction")) > 1:
            s.attempt(_by_lanes, Plan(s, knobs, stage))
    generic(s, knobs)


def _by_lanes(plan: Plan) -> None:
    """Schedule one contraction, and the stage that stores the activations by halves."""
    s, stage, found = plan.s, plan.stage, tile_axes(plan.stage)
    assert found is not None
    rows, columns = map(extent_of, found)
    *_, k, _ = stage.driven("reduction")
    if not rows or not columns or (extent_of(k) or 1) % plan.width:
        raise ScheduleError("the bytes of a group are not whole vectors")
    read = {load.buffer for load in stage.loads}
    for each in list(stages(s.function)):
        if each.output in read:
            tiling.in_lanes(s, each.loops[-1], plan.width)
    best = sides(plan, rows, columns)
    tall = plan.knobs.choice("dot_rows", SIDES, default=best[0])
    wide = plan.knobs.choice("dot_columns", SIDES, default=best[1])
    for narrow in tiling.cut(s, stage.name, found[1].var.name, wide):
        for part in tiling.cut(s, narrow, found[0].var.name, tall):
            _tile(plan, part, stage, (tall, wide))


def _tile(plan: Plan, block: str, stage: Stage, size: tuple[int, int]) -> None:
    """Tile one part of the results."""
    s, found = plan.s, tile_axes(stage)
    assert found is not None
    around = s.loops(block)
    loops = (*found, *stage.driven("reduction"))
    i, j, *others, k, h = (
        next(n for n in around if tiling.is_part(n, loop.var.name)) for loop in loops
    )
    i_0, i_1 = s.split(i, [None, min(size[0], tiling.extent(s, i) or 1)])
    j_0, j_1 = s.split(j, [None, min(size[1], tiling.extent(s, j) or 1)])
    s.reorder(j_0, i_0, *others, k, i_1, j_1, h)
    write, _ = s.cache_write(
        block, stage.output.name, "register", at=i_0, accumulate=True
    )
    _, lane = s.split(k, [None, plan.width])
    sums, _ = s.rfactor(block, lane, axis=len(stage.output.shape))
    *_, lane, i_1, j_1, h = s.loops(sums)
    s.reorder(i_1, j_1, h, lane)
    for each, count in ((sums, 4), (block, 3)):
        *unrolled, lane = s.loops(each)[-count:]
        for loop in unrolled:
            s.unroll(loop)
        s.vectorize(lane)
    tiling.write_back(s, write, i_0)
    if plan.threads:
        tiling.parallelize(s, [j_0, i_0])
