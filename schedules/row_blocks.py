"""Rows that are not neighbours in memory, `[m, n, i]`: blocks of them, a lane each.

    for r in range(m):                          for r_c_0 in parallel(m * blocks):
        for c in range(i):                          top = alloc(f32[1, 64])
            for k in range(n):           ->         for k in range(n):
                top[r, c] = max(... x[r, k, c])         for c_1 in vectorized(64): ...
    ... the next stage                              ... the next stage

What stands behind the row's axis is contiguous, so lanes run along that. What is folded
stays in registers, a block's elements in the cache from one stage to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir.nodes import Expr
from tensorlang.ir.visit import loops
from tensorlang.schedules.cutting import tried
from tensorlang.schedules.stages import Stage, stages
from tensorlang.scheduling import Knobs, Schedule

_LANES: Final = (16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class _Pass:
    """The loops of one stage, cut: blocks, what runs along the rows, lanes."""

    blocks: str
    along: str | None
    lanes: str
    write: str | None


def row_blocks(s: Schedule, knobs: Knobs) -> None:
    """Blocks of rows to threads, each from its first stage to its last at once."""
    lanes = knobs.choice("block", _LANES, default=64)
    found = list(stages(s.function))
    made = [_cut(s, stage, _extents(found[0]), lanes) for stage in found]
    blocks, last = "", None
    for each in made:
        if each is None:
            last = None
        elif last is None or not tried(s, s.merge, blocks, each.blocks):
            blocks, last = each.blocks, each
        else:
            last = last if _joins(s, last, each) else each
    around = {loop.var.name for loop in loops(s.function)}
    for each in filter(None, made):
        for loop in (each.lanes, each.write):
            if loop in around:
                s.vectorize(loop)
        if each.blocks in around:
            s.parallel(each.blocks)


def _extents(stage: Stage) -> tuple[Expr, Expr]:
    """How many rows there are: before the rows' axis, and behind it."""
    spatial = stage.driven("spatial")
    if len(spatial) < 2:
        raise ScheduleError(f"block {stage.name!r} makes no value for each row")
    return spatial[0].extent, spatial[-1].extent


def _joins(s: Schedule, last: _Pass, own: _Pass) -> bool:
    """Whether a stage runs along the rows together with the one before it."""
    if last.along is None or own.along is None:
        return False
    return tried(s, s.merge, last.along, own.along) and tried(
        s, s.merge, last.lanes, own.lanes
    )


def _cut(
    s: Schedule, stage: Stage, rows: tuple[Expr, Expr], lanes: int
) -> _Pass | None:
    """One stage in blocks of `lanes` rows; None where it is of something else."""
    spatial = [loop.var.name for loop in stage.driven("spatial")]
    folded = [loop.var.name for loop in stage.driven("reduction")]
    along = [*spatial[1:-1], *folded]
    if len(spatial) < 2 or len(along) > 1 or _extents(stage) != rows:
        return None
    outer, inner = spatial[0], spatial[-1]
    chunk, lane = s.split(inner, [None, lanes])
    s.reorder(outer, chunk, *along, lane)
    write = None
    if folded:
        back, _ = s.cache_write(stage.name, stage.output.name, "register", at=chunk)
        write = s.loops(back)[-1]
    return _Pass(s.fuse(outer, chunk), along[0] if along else None, lane, write)
