"""Reductions on a CPU: partial results in lanes, results or chunks to threads."""

from __future__ import annotations

from math import prod
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir.nodes import Expr, For
from tensorlang.schedules.plan import Plan
from tensorlang.schedules.stages import contiguous_loop, extent_of
from tensorlang.schedules.streaming import loop_named
from tensorlang.schedules.tiling import cut, cut_at, extent, fused, is_part, parallelize
from tensorlang.scheduling import Schedule

_FEW_CHUNKS: Final = 8
_SHORTER: Final = 4  # chunks of varying lengths: a short last chunk is masked


def long_parts(plan: Plan) -> None:
    """Split a long reduction to one result into fixed-size chunks.

    Chunks go to threads and lanes; they, and so the result, do not depend on the number
    of threads.
    """
    s, stage = plan.s, plan.stage
    if stage.driven("spatial") or not plan.threads:
        raise ScheduleError("there are enough results to distribute")
    first, *inner = stage.loops
    total = extent_of(first)
    most = plan.core.grain // (_SHORTER if total is None else 1)
    length = max(most // prod(extent_of(loop) or 1 for loop in inner), 1)
    parts, _ = s.split(first.var.name, [None, length])
    name, _ = s.rfactor(stage.name, parts)
    blocks = [name]
    if total is None:
        blocks = cut_at(s, name, s.loops(name)[0], first.extent // length)
    elif total > length and total % length:
        blocks = cut_at(s, name, s.loops(name)[0], total // length)
    for part in blocks:
        if contiguous_loop(stage) is stage.loops[-1]:
            left = first.extent - first.extent // length * length
            cut_short = total is None and part != name and not inner
            if not (cut_short and s.attempt(_fold_rest, plan, part, left)):
                fold_in_lanes(s, loop_named(s, s.loops(part)[-1]), plan.partials())
        parallelize(s, s.loops(part)[:1])


def _fold_rest(plan: Plan, block: str, left: Expr) -> None:
    """Reduce a partial chunk in only as many steps as it has elements for.

    Fully masked steps are slower than others: masked-off lanes may address unmapped
    memory, and the fault suppression takes the processor long.
    """
    s, lanes = plan.s, plan.partials()
    loop = s.loops(block)[-1]
    s.decompose_reduction(block, loop)
    step, lane = s.split(loop, [None, lanes])
    s.partition(step, (left + (lanes - 1)) // lanes)
    s.vectorize(lane)


def folded_rows(plan: Plan) -> None:
    """Partial results in lanes along the operand's rows; results to threads."""
    s, stage = plan.s, plan.stage
    along, folded = contiguous_loop(stage), stage.driven("reduction")
    if along is None or along not in folded:
        raise ScheduleError("the operand is contiguous along the results")
    rest = [loop.var.name for loop in folded if loop is not along]
    if folded[-1] is not along:
        s.reorder(*rest, along.var.name)
    spatial = stage.names("spatial")
    results = fused(s, spatial) if spatial else ""
    if extent_of(along) is None:
        first = (*rest, along.var.name)[0]
        fold_any_length(s, along, plan.partials(), [stage.name], first)
    else:
        fold_in_lanes(s, along, plan.partials())
    if results and plan.threads:
        s.parallel(results)


def fold_in_lanes(s: Schedule, loop: For, lanes: int) -> None:
    """Accumulate in lanes; a partial last step is split off."""
    length = extent_of(loop)
    if length is not None:
        lanes = min(lanes, 1 << max(length.bit_length() - 1, 0))
    step, lane = s.split(loop.var.name, [None, lanes])
    s.vectorize(lane)
    if length is not None and length % lanes:
        s.partition(step, length // lanes)


def fold_any_length(
    s: Schedule, loop: For, lanes: int, folds: list[str], first: str = ""
) -> None:
    """Accumulate in lanes along a loop that may be shorter than the vector.

    Their states are initialized before the outermost loop of the reduction, `first` if
    that is another one, and a masked last step continues from the whole ones.
    """
    for block in folds:
        s.decompose_reduction(block, first or loop.var.name)
    step, lane = s.split(loop.var.name, [None, lanes])
    s.vectorize(lane)
    s.partition(step, loop.extent // lanes)


def folded_columns(plan: Plan) -> None:
    """Vectors of results, along which the operand's rows are contiguous."""
    s, stage, lanes = plan.s, plan.stage, plan.partials()
    spatial = stage.names("spatial")
    columns = extent(s, spatial[-1]) or lanes
    if plan.threads and columns < _FEW_CHUNKS * lanes:
        lanes = min(lanes, plan.width)
    folded = stage.names("reduction")
    for part in cut(s, stage.name, spatial[-1], lanes):
        around = s.loops(part)
        *outer, own = (_part_of(around, name) for name in spatial)
        inner = [_part_of(around, name) for name in folded]
        chunk, lane = s.split(own, [None, min(lanes, extent(s, own) or lanes)])
        s.reorder(*outer, chunk, *inner, lane)
        write, _ = s.cache_write(part, stage.output.name, "register", at=chunk)
        s.vectorize(lane)
        s.vectorize(s.loops(write)[-1])
        if plan.threads:
            parallelize(s, [*outer, chunk])


def _part_of(around: tuple[str, ...], name: str) -> str:
    return next(loop for loop in around if is_part(loop, name))
