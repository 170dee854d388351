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
    made = [_cut(s, stage, lanes) for stage in list(stages(s.function))]
    blocks, last = made[0].blocks, made[0]
    alone = [made[0]]
    for each in made[1:]:
        if not tried(s, s.merge, blocks, each.blocks):
            s.parallel(blocks)
            blocks = each.blocks
        elif _joins(s, last, each):
            continue
        alone.append(each)
        last = each
    s.parallel(blocks)
    for loop in [p.lanes for p in alone] + [p.write for p in made if p.write]:
        s.vectorize(loop)


def _joins(s: Schedule, last: _Pass, own: _Pass) -> bool:
    """Whether a stage runs along the rows together with the one before it."""
    if last.along is None or own.along is None:
        return False
    return tried(s, s.merge, last.along, own.along) and tried(
        s, s.merge, last.lanes, own.lanes
    )


def _cut(s: Schedule, stage: Stage, lanes: int) -> _Pass:
    """One stage in blocks of `lanes` rows."""
    outer, *between, inner = [loop.var.name for loop in stage.driven("spatial")]
    folded = [loop.var.name for loop in stage.driven("reduction")]
    along = [*between, *folded]
    if len(along) > 1:
        raise ScheduleError(f"block {stage.name!r} runs along more than its rows")
    chunk, lane = s.split(inner, [None, lanes])
    s.reorder(outer, chunk, *along, lane)
    write = None
    if folded:
        back, _ = s.cache_write(stage.name, stage.output.name, "register", at=chunk)
        write = s.loops(back)[-1]
    return _Pass(s.fuse(outer, chunk), along[0] if along else None, lane, write)
