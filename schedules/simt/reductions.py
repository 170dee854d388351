"""Reductions on threads, scheduled by the memory order of their operand.

Along contiguous memory, a block's threads reduce one result together; across it,
neighbouring threads reduce neighbouring results, with several groups of threads for a
chunk each; a single result is reduced in fixed-size chunks, one per block, which a last
block combines. The chunks, and so the result, do not depend on the device's size.
"""

from __future__ import annotations

from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir.collectives import WARP
from tensorlang.ir.contents import blocks, loops
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.nodes import Const, Expr, For
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.schedules.generic import stage_named
from tensorlang.schedules.simt.matrices import writer_of
from tensorlang.schedules.simt.row_threads import RowThreads, distribute_row, row_knobs
from tensorlang.schedules.stages import (
    Stage,
    contiguous_loop,
    extent_of,
    trips,
    variables,
)
from tensorlang.schedules.streaming import loop_named
from tensorlang.schedules.tiling import extent, fused
from tensorlang.scheduling import Knobs, Schedule

_SHORT: Final = 32  # elements that one thread reduces as fast as several do
_GROUPS: Final = (1, 2, 4, 8, 16, 32)
_STEPS: Final = 4  # loads in flight per thread
_BLOCK_GROUPS: Final = (16, 32, 64, 128, 256)
_BLOCK_STEPS: Final = (2, 4, 8)
_ACCESS_BITS: Final = 128  # of one access by a thread
_BLOCK: Final = 1024  # threads, unless the target says otherwise
_SHARED: Final = 32 << 10  # bytes of a block's partial results, at most
_BLOCKS: Final = 128  # about the multiprocessors of a device
_PARTS: Final = (64, 128, 256, 512, 1024, 2048)  # rows of a chunk
_PART_THREADS: Final = (128, 256, 512)
_PART_STEPS: Final = (2, 4, 8, 16)
_ACROSS: Final = ("launches", "atomics")
_WINDOWS: Final = 8  # windows that at least fit a row they slide along
_MANY: Final = 1 << 15  # threads that occupy a device


def along_memory(s: Schedule, knobs: Knobs, stage: Stage) -> None:
    """Several contiguous reductions: threads cooperate on each of them."""
    rows, folded = _parted(stage)
    if not rows or not _is_contiguous(stage, folded[-1]):
        raise ScheduleError(f"{stage.name} does not reduce contiguous elements")
    length = trips(folded)
    if length is not None and length < _SHORT:
        raise ScheduleError(f"{stage.name} reduces few elements")
    how = row_knobs(knobs, length, _bits(stage), stage.name)
    writer = writer_of(s, stage)
    row, loop = _in_order(s, stage)
    blocks, inner = s.split(row, [None, how.rows]) if how.rows > 1 else (row, row)
    if writer:
        s.attempt(_written_by, s, writer, stage.output.name, inner)
    distribute_row(s, loop, how)
    s.bind(blocks, "block.x")
    if how.rows > 1:
        s.bind(inner, "thread.y")


def _written_by(s: Schedule, writer: str, result: str, at: str) -> None:
    """Fuse the reader of each result where that is complete."""
    s.reverse_compute_at(writer, at)
    s.store_at(result, at)


def across_memory(s: Schedule, knobs: Knobs, stage: Stage) -> None:
    """Few results that are contiguous themselves: several groups of threads.

    Where there are blocks of a warp's results for a whole device, one launch of large
    blocks, whose threads read several neighbours at once; otherwise in chunks.
    """
    columns, folded = _parted(stage)
    if not columns or contiguous_loop(stage) is not columns[-1]:
        raise ScheduleError(f"{stage.name} has no contiguous results")
    length = trips(folded)
    if length is not None and length < _SHORT:
        raise ScheduleError(f"{stage.name} reduces few elements")
    if not s.attempt(_large_blocks, s, knobs, stage):
        _chunks(s, knobs, stage)


def _chunks(s: Schedule, knobs: Knobs, stage: Stage) -> None:
    """Chunks of rows, combined by a second launch if there are several."""
    count, length = map(trips, _parted(stage))
    if count is not None and count >= _MANY:
        raise ScheduleError(f"{stage.name} has enough results")
    groups = knobs.choice("groups", _GROUPS, default=8)
    part = knobs.choice("rows_of_a_part", _PARTS, default=512)
    column, row = _in_order(s, stage)
    if (length is None or length > part) and (count or 1) * groups < _MANY:
        outer, inner = s.split(row, [None, part])
        name, _ = s.rfactor(stage.name, outer)
        s.reorder(outer, column, inner)
        _columns(s, name, groups)
    _columns(s, stage.name, groups)


def _large_blocks(s: Schedule, knobs: Knobs, stage: Stage) -> None:
    """Blocks of a warp's results, each thread reducing rows of several neighbours."""
    results = trips(stage.driven("spatial"))
    if results is not None and (results % WARP or results < _BLOCKS * WARP):
        raise ScheduleError(f"{stage.name} has {results} results, too few for a device")
    lanes = max(_ACCESS_BITS // max(_bits(stage), 8), 1)
    held = WARP * sum(buffer.dtype.bytes for buffer in stage.outputs)
    threads = (s.target.block_threads if s.target else 0) or _BLOCK
    most = min(threads * lanes // WARP, _SHARED // held)
    default = max((n for n in _BLOCK_GROUPS if n <= most), default=_BLOCK_GROUPS[0])
    groups = knobs.choice("block_groups", _BLOCK_GROUPS, default=default)
    steps = knobs.choice("block_steps", _BLOCK_STEPS, default=4)
    column, row = _in_order(s, stage)
    count, length = (loop_named(s, name).extent for name in (column, row))
    few = _unless(s, column, (count % WARP).equal(0) & (count >= _BLOCKS * WARP))
    ragged = _unless(s, column, (length % (steps * groups)).equal(0))
    for name in filter(None, (column, ragged)):
        _results(s, name, groups, steps, lanes)
    if few:
        (name,) = (block.name for block in blocks(loop_named(s, few)))
        s.attempt(_chunks, s, knobs, stage_named(s, name))


def _unless(s: Schedule, loop: str, condition: Expr) -> str:
    """The loop for when a condition is false; empty if constants decide it."""
    decided = isinstance(simplify(condition), Const)
    return "" if decided else s.specialize(loop, condition)


def _results(s: Schedule, column: str, groups: int, steps: int, lanes: int) -> None:
    """A block for a warp's results, its groups of threads for every so many rows."""
    (row,) = (loop.var.name for loop in loops(loop_named(s, column).body))
    results, thread, lane = s.split(column, [None, WARP // lanes, lanes])
    step, more, group = s.split(row, [None, steps, groups])
    s.reorder(results, thread, group, step, more, lane)
    s.unroll(more)
    s.vectorize(lane)
    s.bind(results, "block.x")
    s.bind(thread, "thread.x")
    s.bind(group, "thread.y")


def one_result(s: Schedule, knobs: Knobs, stage: Stage) -> None:
    """A single result: fixed-size chunks, which a second stage combines."""
    if any(extent_of(loop) != 1 for loop in stage.driven("spatial")):
        raise ScheduleError("there are enough results to distribute")
    folded = stage.driven("reduction")
    threads = knobs.choice("part_threads", _PART_THREADS, default=256)
    steps = knobs.choice("part_steps", _PART_STEPS, default=8)
    lanes = max(128 // max(_bits(stage), 8), 1)
    length = threads * steps * lanes
    total = trips(folded)
    loop = fused(s, [each.var.name for each in folded])
    if total is not None and total <= length:
        distribute_row(s, loop, _one_block(total))
        return
    how = RowThreads(length, threads, 1, lanes)
    known = total is not None and _is_exact(stage)
    if known and knobs.choice("across_blocks", _ACROSS) == "atomics":
        _accumulate_atomically(s, stage, loop, how)
        return
    parts, _ = s.split(loop, [None, length])
    name, _ = s.rfactor(stage.name, parts)
    outer, inner = s.loops(name)[-2:]
    distribute_row(s, inner, how)
    s.bind(outer, "block.x")
    last = s.loops(stage.name)[-1]
    distribute_row(s, last, _one_block(extent(s, last)))


def _is_contiguous(stage: Stage, loop: For) -> bool:
    """Whether the largest operand is contiguous along a loop, or slides along it."""
    if contiguous_loop(stage) is not loop:
        return False
    largest = max(stage.loads, key=lambda load: len(variables(load)))
    steps = dict(linear(largest.indices[-1]).terms)
    own = steps.pop(stage.axis(loop), 0)
    loops = {stage.axis(other): extent_of(other) for other in stage.loops}
    length = extent_of(loop) or 0
    return own == 1 and all(
        step >= _SHORT or (loops.get(axis) or length) * _WINDOWS <= length  # type: ignore[call-overload]
        for axis, step in steps.items()
    )


def _is_exact(stage: Stage) -> bool:
    """Whether the result is independent of the order of reduction."""
    return not stage.output.dtype.is_float and len(stage.outputs) == 1


def _accumulate_atomically(
    s: Schedule, stage: Stage, loop: str, how: RowThreads
) -> None:
    """Each thread reduces its own elements, and adds that to the result atomically."""
    parts, inner = s.split(loop, [None, how.length])
    rest, lane = s.split(inner, [None, how.lanes])
    step, thread = s.split(rest, [None, how.threads])
    s.reorder(parts, thread, step, lane)
    total, _ = s.cache_write(
        stage.name, stage.output.name, "register", thread, accumulate=True
    )
    s.decompose_reduction(total, s.loops(total)[0])
    s.atomic(total)
    s.bind(parts, "block.x")
    s.bind(thread, "thread.x")
    s.unroll(step)
    if how.lanes > 1:
        s.vectorize(lane)


def _one_block(total: int | None) -> RowThreads:
    """One block for one result."""
    return RowThreads(None if total is None else total, 256, 1, 1)


def _parted(stage: Stage) -> tuple[tuple[For, ...], tuple[For, ...]]:
    return stage.driven("spatial"), stage.driven("reduction")


def _in_order(s: Schedule, stage: Stage) -> tuple[str, str]:
    """The loops over results, fused, around the reduction loops, fused."""
    spatial, folded = _parted(stage)
    first, then = ([x.var.name for x in part] for part in (spatial, folded))
    if [loop.var.name for loop in stage.loops] != [*first, *then]:
        s.reorder(*first, *then)
    return fused(s, first), fused(s, then)


def _columns(s: Schedule, block: str, groups: int) -> None:
    """Neighbouring results to neighbouring threads, chunks to groups of threads."""
    *results, row = s.loops(block)
    column = results[-1]
    blocks, thread = s.split(column, [None, WARP])
    step, more, group = s.split(row, [None, _STEPS, groups])
    s.reorder(*results[:-1], blocks, thread, group, step, more)
    if len(results) > 1:
        blocks = fused(s, [*results[:-1], blocks])
    s.unroll(more)
    s.bind(blocks, "block.x")
    s.bind(thread, "thread.x")
    s.bind(group, "thread.y")


def _bits(stage: Stage) -> int:
    return max((load.buffer.dtype.bits for load in stage.loads), default=32)
