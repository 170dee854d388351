"""Gradients of broadcast operands on a CPU: partial column sums kept in registers.

    for p in range(parts):              for p, j_0 in parallel(parts, n // lanes):
        for j in range(n):                  acc = alloc(f32[lanes], scope="register")
            for r in range(rows):   ->      for r in range(rows):
                part[p, j] += x[...]            for j_1 in vectorized(lanes):
                                                    acc[j_1] += x[...]
                                            part[p, ...] = acc

Long rows go in several registers at once, short ones in as few as they fill. All else
Long rows use several registers side by side, short ones as few as they fill. Anything
else falls back to the generic schedule.
"""

from __future__ import annotations

from typing import Final

from tensorlang.ir.contents import blocks
from tensorlang.schedules.generic import generic
from tensorlang.schedules.plan import Plan
from tensorlang.schedules.stages import Stage, contiguous_loop, stages
from tensorlang.schedules.tiling import parallelize
from tensorlang.scheduling import Knobs, Schedule, schedule

_WIDE: Final = (2, 4, 8, 16)  # registers
_NARROW: Final = (1, 2)


@schedule("broadcast_grad")
def broadcast_grad(s: Schedule, knobs: Knobs) -> None:
    """Accumulate contiguous columns in registers; the rest is scheduled generically."""
    for stage in list(stages(s.function)):
        if _is_contiguous(stage):
            s.attempt(_by_row_length, Plan(s, knobs, stage))
    generic(s, knobs)


def _is_contiguous(stage: Stage) -> bool:
    """Whether a reduction's results are contiguous like the rows of its operand."""
    spatial = stage.driven("spatial")
    folds = bool(stage.driven("reduction"))
    return folds and bool(spatial) and contiguous_loop(stage) is spatial[-1]


def _by_row_length(plan: Plan) -> None:
    """Specialize for rows that fill several registers and for shorter ones."""
    s, stage = plan.s, plan.stage
    wide = plan.width * plan.knobs.choice("wide", _WIDE, default=4)
    narrow = plan.width * plan.knobs.choice("narrow", _NARROW, default=1)
    known = {block.name for block in blocks(s.function)}
    length = stage.driven("spatial")[-1].extent
    s.specialize(stage.loops[0].var.name, length >= wide)
    short = next(b.name for b in blocks(s.function) if b.name not in known)
    for block, lanes in ((stage.name, wide), (short, narrow)):
        _in_registers(s, block, stage, lanes)


def _in_registers(s: Schedule, block: str, stage: Stage, lanes: int) -> None:
    """Accumulate a vector of columns in registers; chunks of columns go to threads."""
    loops = s.loops(block)
    count = len(stage.driven("spatial"))
    *outer, columns = loops[:count]
    chunk, lane = s.split(columns, [None, lanes])
    s.reorder(*outer, chunk, *loops[count:], lane)
    write, _ = s.cache_write(block, stage.output.name, "register", at=chunk)
    s.vectorize(lane)
    s.vectorize(s.loops(write)[-1])
    parallelize(s, [*outer, chunk])
