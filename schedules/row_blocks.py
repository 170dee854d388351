"""Programs over strided rows, `[m, n, i]`: blocks of rows, one lane each.

    for r in range(m):                          for r_c_0 in parallel(m * blocks):
        for c in range(i):                          top = alloc(f32[1, 64])
            for k in range(n):           ->         for k in range(n):
                top[r, c] = max(... x[r, k, c])         for c_1 in vectorized(64): ...
    ... the next stage                              ... the next stage

The dimensions after the row axis are contiguous, so lanes run along them. Reduction
state stays in registers, a block's elements in the cache from stage to stage.
"""

from __future__ import annotations

from typing import Final

from tensorlang.frozen import frozen
from tensorlang.ir.contents import blocks, loops
from tensorlang.ir.nodes import Expr
from tensorlang.schedules.plan import Plan
from tensorlang.schedules.stages import Stage, extent_of, stages
from tensorlang.schedules.streaming import nearest_option
from tensorlang.schedules.tiling import fused
from tensorlang.scheduling import Knobs, Schedule

_LANES: Final = (16, 32, 64, 128)
_REGISTERS: Final = 4  # side by side, which hides the latency of a reduction


@frozen
class _Pass:
    """One stage's loops after tiling: blocks, the loop along the rows, lanes."""

    blocks: str
    along: str | None
    lanes: str
    write: str | None


def row_blocks(s: Schedule, knobs: Knobs) -> None:
    """Blocks of rows to threads, each running all its stages together."""
    first = Plan(s, knobs, next(stages(s.function)))
    wide = nearest_option(_REGISTERS * first.width, _LANES)
    lanes = knobs.choice("block", _LANES, default=wide)
    made = []
    rows: tuple[Expr, ...] = ()
    for stage in list(stages(s.function)):
        if stage.driven("reduction"):
            rows = _extents(stage)
        made.append(_cut(s, stage, rows, lanes))
    whole, last = "", None
    for each in made:
        if each is None:
            last = None
        elif last is None or not s.attempt(s.merge, whole, each.blocks):
            whole, last = each.blocks, each
        else:
            last = last if _joins(s, last, each) else each
    around = {loop.var.name for loop in loops(s.function)}
    for each in filter(None, made):
        for loop in (each.lanes, each.write):
            if loop in around:
                s.vectorize(loop)
        if each.blocks in around:
            s.parallel(each.blocks)


def _extents(stage: Stage) -> tuple[Expr, ...]:
    """The extents of the rows' dimensions, before and after the row axis."""
    return tuple(loop.extent for loop in stage.driven("spatial"))


def _joins(s: Schedule, last: _Pass, own: _Pass) -> bool:
    """Whether a stage's loops along the rows merge with those of the previous one."""
    if last.along is None or own.along is None:
        return False
    return s.attempt(s.merge, last.along, own.along) and s.attempt(
        s.merge, last.lanes, own.lanes
    )


def _cut(s: Schedule, stage: Stage, rows: tuple[Expr, ...], lanes: int) -> _Pass | None:
    """Tile one stage in blocks of `lanes` rows; None if it is over other rows."""
    spatial = stage.names("spatial")
    folded = stage.names("reduction")
    own, before = _extents(stage), len(rows) - 1
    if len(own) < 2 or (*own[:before], own[-1]) != rows:
        return None
    along = [*spatial[before:-1], *folded]
    if len(along) > 1 or (along and not folded and _is_any_length(stage, along[0])):
        return None
    outer, inner = spatial[:before], spatial[-1]
    chunk, lane = s.split(inner, [None, lanes])
    s.reorder(*outer, chunk, *along, lane)
    write = _in_registers(s, stage, chunk) if folded else None
    whole = fused(s, [*outer, chunk])
    return _Pass(whole, along[0] if along else None, lane, write)


def _is_any_length(stage: Stage, name: str) -> bool:
    """Whether a loop's length is unknown, so that its data may not stay cached."""
    return any(x.var.name == name and extent_of(x) is None for x in stage.loops)


def _in_registers(s: Schedule, stage: Stage, chunk: str) -> str | None:
    """Keep a reduction's state in registers; returns the loop that writes it back.

    The combining stage of rows reduced in chunks stays in memory: it is short.
    """
    before = {block.name for block in blocks(s.function)}
    if not s.attempt(s.cache_write, stage.name, stage.output.name, "register", chunk):
        return None
    back = next(b.name for b in blocks(s.function) if b.name not in before)
    return s.loops(back)[-1]
