"""Arbitrary f16 and bf16 contractions on tensor cores: convolutions, batches.

They are matrix products (`matrices`), whose operands are gathered where they are
staged. Operands contiguous along steps are copied in rows of steps, as in
`tensor_cores`; those contiguous along rows, such as pixels of images, are copied in
that order and transposed by `ldmatrix`. Batches become blocks of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.schedules.simt.fragments import (
    bind_threads,
    columns_in_rows,
    fragment_layout,
    staged_rows,
    swizzled,
)
from tensorlang.schedules.simt.matrices import (
    Matrices,
    Sides,
    as_matrices,
    pad,
    sides_of,
)
from tensorlang.schedules.simt.split_steps import PARTS, combine, parts_of, split_k
from tensorlang.schedules.simt.staging import memory_order
from tensorlang.schedules.simt.tensor_cores import (
    FORMS,
    Form,
    Tile,
    can_interleave,
    tile_of,
)
from tensorlang.schedules.stages import Stage, extent_of
from tensorlang.schedules.tiling import extent, fused, written
from tensorlang.scheduling import Knobs, Schedule
from tensorlang.scheduling.analysis.tree import find_buffer

_LEAST: Final = 16  # rows, columns and steps of one instruction


def tensor_contractions(s: Schedule, knobs: Knobs, stage: Stage) -> None:
    """Schedule a contraction of two f16 or bf16 operands, with its epilogue.

    Raises:
        ScheduleError: the target has no tensor cores, or the stage is not of this form.
    """
    sides = sides_of(stage)
    kinds = {load.buffer.dtype.name for load in sides.loads}
    if len(kinds) != 1 or not kinds <= {"f16", "bf16"}:
        raise ScheduleError("tensor cores need two operands of f16 or of bf16")
    sizes = [sides.extent(group) for group in ("row", "column", "step")]
    if any(size is not None and size < _LEAST for size in sizes):
        raise ScheduleError(f"{sizes} rows, columns and steps fill no product of 16")
    form = FORMS[kinds.pop()]
    first = stage.loads[0] == sides.loads[0]
    matrices = as_matrices(s, stage, sides)
    tile = tile_of(s, knobs, stage, form, sizes)
    staged = [
        _Staged(*made, *memory_order(s, made[0], form.chunk))
        for made in matrices.copies
    ]
    parts = _parts(knobs, stage, sides, tile)
    if parts == 1 and staged[1].steps and can_interleave(tile, form):
        again = f"_{stage.name}" if "wide" in knobs.values else ""
        tile = replace(tile, wide=knobs.flag(f"wide{again}", default=_is_even(sides)))
    step = tile.depth * parts
    pad(s, matrices, row=tile.rows, column=tile.columns, step=step)
    if parts == 1:
        steps = [*s.split(matrices.loops["step"], [None, tile.depth])]
        _schedule(s, matrices, staged, tile, form, steps=steps, swapped=not first)
        return
    block, steps = split_k(s, matrices, parts, tile.depth)
    alone = replace(matrices, block=block, writer="")
    _schedule(s, alone, staged, tile, form, steps=steps, swapped=not first)
    combine(s, matrices)


def _is_even(sides: Sides) -> bool:
    """Whether the results of an image, or of a pixel, are a multiple of 16 bytes."""
    known = [extent_of(loop) or 1 for loop in sides.groups["column"]]
    return prod(known) % 8 == 0


def _parts(knobs: Knobs, stage: Stage, sides: Sides, tile: Tile) -> int:
    """The knob: the number of parts that the steps are split into."""
    again = f"_{stage.name}" if "step_parts" in knobs.values else ""
    default = parts_of(sides, (tile.rows, tile.columns))
    return knobs.choice(f"step_parts{again}", PARTS, default=default)


@frozen
class _Staged:
    """The block that gathers an operand, its buffer, and the operand's memory order.

    `steps`: contiguous along steps; `wide`: along rows, several of which are read at
    once.
    """

    copy: str
    buffer: str
    steps: bool
    wide: bool


def _schedule(
    s: Schedule,
    matrices: Matrices,
    staged: Sequence[_Staged],
    tile: Tile,
    form: Form,
    *,
    steps: Sequence[str],
    swapped: bool,
) -> None:
    """Tile rows and columns, given loops over tiles of steps and over one of them."""
    loops, block, lanes = matrices.loops, matrices.block, tile.lanes
    i0, *i = s.split(loops["row"], [None, *lanes.split(0)])
    j0, *j = s.split(loops["column"], [None, *lanes.split(1)])
    k0, k1, k2 = steps[0], *s.split(steps[1], [tile.depth // form.step, form.step])
    threads, own = lanes.order(i, j)
    batch = [loops["batch"]] if "batch" in loops else []
    tiles = [i0, j0] if extent(s, j0) is not None else [j0, i0]  # static ones inside
    s.reorder(*batch, *tiles, k0, *threads, k1, *own, k2)
    result = written(s, block)
    if tile.wide:  # two interleaved products are two
        own[1:3] = [fused(s, own[1:3])]
    write, sums = s.cache_write(block, result, "shared", at=tiles[-1])
    if matrices.writer:
        s.attempt(partial(s.inline, reverse=True), matrices.writer)
    init = s.decompose_reduction(block, k0)
    for operand in staged:
        _stage(s, operand, k0, tile, form, wide=tile.wide and operand is staged[1])
    first = len(batch) + 2
    bind_threads(s, s.loops(init)[first : first + 4], s.loops(init)[first + 4 :])
    lanes.share(s, write, columns_first=tiles[0] == j0)
    bind_threads(s, threads, [k1, *own[:2]])
    ndim = find_buffer(s.function, sums).ndim
    s.transform_layout(sums, fragment_layout(lanes, first=ndim - 2))
    ways = [f"_{side}c" for side, o in zip("ab", staged, strict=True) if not o.steps]
    s.tensorize(own[2], form.instruction(ways, swapped=swapped, wide=tile.wide))
    bind_blocks(s, [*batch, *tiles])
    stages = min(tile.stages, extent(s, k0) or tile.stages)
    if stages > 1:
        s.pipeline(k0, stages)


def bind_blocks(s: Schedule, loops: Sequence[str]) -> None:
    """Bind loops over batches and over tiles, slowest first, to blocks.

    As many as possible are fused into block.x, where neighbours share what they read:
    block.y and block.z are limited to 65535. Loops around one of dynamic length stay
    separate: recovering their indices would need a division by a dynamic value.
    """
    left = list(loops)
    for index in ("block.x", "block.y", "block.z"):
        known = [extent(s, loop) is not None for loop in left]
        count = next((n for n, fixed in enumerate(reversed(known)) if not fixed), None)
        cut = 0 if count is None else max(len(left) - count - 1, 0)
        if left:
            s.bind(fused(s, left[cut:]), index)
        left = left[:cut]


def _stage(
    s: Schedule, operand: _Staged, at: str, tile: Tile, form: Form, *, wide: bool
) -> None:
    """Gather an operand inside a loop, 16 bytes at once if it is contiguous."""
    copy, buffer, threads = operand.copy, operand.buffer, tile.lanes.threads
    s.compute_at(copy, at)
    s.set_scope(buffer, "shared")
    first = find_buffer(s.function, buffer).ndim - 2
    if operand.steps:
        layout = swizzled(tile.depth, form.chunk, wide=wide, first=first)
        staged_rows(s, copy, buffer, layout, threads=threads, chunk=form.chunk)
        return
    rows, steps = s.loops(copy)[-2:]
    length = extent(s, rows) or threads
    s.transform_layout(buffer, columns_in_rows(length, form.chunk, first))
    row, lane = s.split(rows, [None, form.chunk if operand.wide else 1])
    neighbours = extent(s, row) or threads
    turn, step = s.split(steps, [None, min(max(threads // neighbours, 1), tile.depth)])
    s.reorder(step, row, turn, lane)
    s.bind(fused(s, (step, row)), "thread.x")
    s.unroll(turn)
    s.vectorize(lane)
