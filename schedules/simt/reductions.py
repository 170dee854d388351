"""Reductions on threads: by where what is folded lies in memory.

Along memory, a block's threads fold a result together; across memory, neighbouring
threads fold neighbouring results, and several groups of them a part each; one result of
many numbers goes in parts of fixed length, a block each, which one block folds then.
How it is cut does not depend on the device's size, and so the result does not.
"""

from __future__ import annotations

from math import prod
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir.contents import free_vars
from tensorlang.ir.nodes import For, Load
from tensorlang.schedules.simt.matrices import writer_of
from tensorlang.schedules.simt.row_threads import RowThreads, along, row_knobs
from tensorlang.schedules.stages import Stage, contiguous_loop, extent_of
from tensorlang.schedules.tiling import attempt, extent, fused
from tensorlang.scheduling import Knobs, Schedule
from tensorlang.scheduling.linear import linear

_SHORT: Final = 32  # numbers that one thread folds as fast as several
_WARP: Final = 32
_GROUPS: Final = (1, 2, 4, 8, 16, 32)
_STEPS: Final = 4  # loads that one thread has under way
_PARTS: Final = (64, 128, 256, 512, 1024, 2048)  # rows of a part
_PART_THREADS: Final = (128, 256, 512)
_PART_STEPS: Final = (2, 4, 8, 16)
_ACROSS: Final = ("launches", "atomics")
_WINDOWS: Final = 8  # of a window that slides along a row, in that row
_MANY: Final = 1 << 15  # threads that keep a device busy


def along_memory(s: Schedule, knobs: Knobs, stage: Stage) -> None:
    """Several results of neighbours in memory: threads fold each of them together."""
    rows, folded = _parted(stage)
    if not rows or not _lies_along(stage, folded[-1]):
        raise ScheduleError(f"{stage.name} does not fold neighbours")
    length = _size(folded)
    if length is not None and length < _SHORT:
        raise ScheduleError(f"{stage.name} folds few numbers")
    how = row_knobs(knobs, length, _bits(stage), stage.name)
    writer = writer_of(s, stage)
    row, loop = _in_order(s, stage)
    blocks, inner = s.split(row, [None, how.rows]) if how.rows > 1 else (row, row)
    if writer:
        attempt(s, _written_by, s, writer, stage.output.name, inner)
    along(s, loop, how)
    s.bind(blocks, "block.x")
    if how.rows > 1:
        s.bind(inner, "thread.y")


def _written_by(s: Schedule, writer: str, result: str, at: str) -> None:
    """What follows each result, as soon as it is complete."""
    s.reverse_compute_at(writer, at)
    s.store_at(result, at)


def across_memory(s: Schedule, knobs: Knobs, stage: Stage) -> None:
    """Few results that are neighbours themselves: several groups of threads."""
    columns, folded = _parted(stage)
    if not columns or contiguous_loop(stage) is not columns[-1]:
        raise ScheduleError(f"{stage.name} has no neighbouring results")
    count, length = _size(columns), _size(folded)
    many = count is not None and count >= _MANY
    if many or (length is not None and length < _SHORT):
        raise ScheduleError(f"{stage.name} has results enough, or folds few numbers")
    groups = knobs.choice("groups", _GROUPS, default=8)
    part = knobs.choice("rows_of_a_part", _PARTS, default=512)
    column, row = _in_order(s, stage)
    if (length is None or length > part) and (count or 1) * groups < _MANY:
        outer, inner = s.split(row, [None, part])
        name, _ = s.rfactor(stage.name, outer)
        s.reorder(outer, column, inner)
        _columns(s, name, groups)
    _columns(s, stage.name, groups)


def whole(s: Schedule, knobs: Knobs, stage: Stage) -> None:
    """One result: parts of a fixed length, then these."""
    if any(extent_of(loop) != 1 for loop in stage.driven("spatial")):
        raise ScheduleError("there are results enough to share out")
    folded = stage.driven("reduction")
    threads = knobs.choice("part_threads", _PART_THREADS, default=256)
    steps = knobs.choice("part_steps", _PART_STEPS, default=8)
    lanes = max(128 // max(_bits(stage), 8), 1)
    length = threads * steps * lanes
    total = _size(folded)
    loop = fused(s, [each.var.name for each in folded])
    if total is not None and total <= length:
        along(s, loop, _alone(total))
        return
    how = RowThreads(length, threads, 1, lanes)
    known = total is not None and _is_exact(stage)
    if known and knobs.choice("across_blocks", _ACROSS) == "atomics":
        _added_up(s, stage, loop, how)
        return
    parts, _ = s.split(loop, [None, length])
    name, _ = s.rfactor(stage.name, parts)
    outer, inner = s.loops(name)[-2:]
    along(s, inner, how)
    s.bind(outer, "block.x")
    last = s.loops(stage.name)[-1]
    along(s, last, _alone(extent(s, last)))


def _lies_along(stage: Stage, loop: For) -> bool:
    """Whether the largest operand lies along a loop, or slides along it a little."""
    if contiguous_loop(stage) is not loop:
        return False
    largest = max(stage.loads, key=_freedom)
    steps = dict(linear(largest.indices[-1]).terms)
    own = steps.pop(stage.axis(loop), 0)
    loops = {stage.axis(other): extent_of(other) for other in stage.loops}
    length = extent_of(loop) or 0
    return own == 1 and all(
        step >= _SHORT or (loops.get(axis) or length) * _WINDOWS <= length  # type: ignore[call-overload]
        for axis, step in steps.items()
    )


def _freedom(load: Load) -> int:
    """How many variables a place depends on."""
    return len(frozenset().union(*(free_vars(index) for index in load.indices)))


def _is_exact(stage: Stage) -> bool:
    """Whether the order in which a result is folded never shows in it."""
    return not stage.output.dtype.is_float and len(stage.outputs) == 1


def _added_up(s: Schedule, stage: Stage, loop: str, how: RowThreads) -> None:
    """Each thread folds its own numbers, and then adds that to the result."""
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


def _alone(total: int | None) -> RowThreads:
    """One block for one result."""
    return RowThreads(None if total is None else total, 256, 1, 1)


def _parted(stage: Stage) -> tuple[tuple[For, ...], tuple[For, ...]]:
    return stage.driven("spatial"), stage.driven("reduction")


def _in_order(s: Schedule, stage: Stage) -> tuple[str, str]:
    """The loops over results as one, around those of the reduction as one."""
    spatial, folded = _parted(stage)
    first, then = ([x.var.name for x in part] for part in (spatial, folded))
    if [loop.var.name for loop in stage.loops] != [*first, *then]:
        s.reorder(*first, *then)
    return fused(s, first), fused(s, then)


def _columns(s: Schedule, block: str, groups: int) -> None:
    """Neighbouring results to neighbouring threads, parts of each to groups of them."""
    *results, row = s.loops(block)
    column = results[-1]
    blocks, thread = s.split(column, [None, _WARP])
    step, more, group = s.split(row, [None, _STEPS, groups])
    s.reorder(*results[:-1], blocks, thread, group, step, more)
    if len(results) > 1:
        blocks = fused(s, [*results[:-1], blocks])
    s.unroll(more)
    s.bind(blocks, "block.x")
    s.bind(thread, "thread.x")
    s.bind(group, "thread.y")


def _size(loops: tuple[For, ...]) -> int | None:
    """How often a nest runs, where that is known."""
    sizes = [extent_of(loop) for loop in loops]
    return None if None in sizes else prod(size for size in sizes if size is not None)


def _bits(stage: Stage) -> int:
    return max((load.buffer.dtype.bits for load in stage.loads), default=32)
