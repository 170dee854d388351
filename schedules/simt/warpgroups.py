"""Matrix products of f16 and bf16 by warpgroups: Hopper's `wgmma`, fed by bulk copies.

    y[i, j] = epilogue(sum over k of x[i, k] * w[j, k])

A block has a tile of rows and columns, each of its warpgroups 64 of the rows. Warps of
their own copy the operands, tile by tile of 128-byte rows, to a ring of stages in
shared memory, while the warpgroups multiply earlier ones. Sums stay in registers, where
the epilogue runs on them.

Either operand may be transposed in memory, `x[k, i]`: the instructions read it as it
lies, in tiles of 64 by 64. Ragged sizes are zero-padded to tiles by the copies. Other
axes of the result, as in a batch of products, are loops around those over tiles. An
unknown number of rows may be a small one, of which large tiles would leave most
multiprocessors idle: then another launch has smaller ones.
Other forms are left to `tensor_cores`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tensorlang.errors import ArgumentError, ScheduleError
from tensorlang.frozen import frozen
from tensorlang.ir.contents import writes
from tensorlang.ir.integers.bounds import counted, prove
from tensorlang.ir.integers.size_bounds import size_ranges
from tensorlang.ir.nodes import Buffer, Const, Load, Var
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.machine.gpus import GROUP_ROWS, MAPPED, OBJECTS, PIECE
from tensorlang.schedules.simt.fragments import fragment_layout, paneled, swizzled
from tensorlang.schedules.simt.grid import GROUPS, neighbouring
from tensorlang.schedules.simt.split_steps import PARTS, combine_parts
from tensorlang.schedules.simt.tensor_cores import (
    FORMS,
    Operand,
    epilogues,
    operands,
    padded_operands,
    readers,
    staged,
    temporary,
)
from tensorlang.schedules.simt.warpgroup_tiles import (
    BYTES,
    COLUMNS,
    GROUPS_OF_BLOCK,
    ROWS,
    Tile,
    batches_of,
    cases_of,
    count_of,
    fastest,
    processors_of,
    sizes_of,
    squarest,
)
from tensorlang.schedules.stages import (
    CONTRACTION,
    Stage,
    extent_of,
    kind_of,
    stages,
    tile_axes,
)
from tensorlang.schedules.tiling import extent, fused, written
from tensorlang.scheduling import Knobs, Schedule
from tensorlang.scheduling.analysis.tree import block_of, find_block, find_buffer

_CHUNK: Final = PIECE // BYTES  # elements
_STAGES: Final = (2, 3, 4, 5, 6)
_USUAL_STAGES: Final = 4
_FLIGHTS: Final = (0, 1)


def warpgroups(s: Schedule, knobs: Knobs, stage: Stage) -> None:
    """Schedule a product of two matrices with its epilogue.

    Raises:
        ScheduleError: the target has no such instructions, the stage is not of this
            form, or a knob chooses other instructions.
        ArgumentError: that is so, and a caller fixes the instruction; or another knob
            does not fit.
    """
    asked = set(knobs.values)
    try:
        _matrices(s, knobs, stage)
    except ScheduleError as problem:
        for name in ("instruction", "in_flight"):
            knobs.absent.setdefault(name, str(problem))
        for name in knobs.values.keys() - asked:
            if name.startswith("instruction") and knobs.fixes(name, "wgmma"):
                raise ArgumentError(f"{name}=wgmma: {problem}") from None
        raise


def few_rows(s: Schedule, knobs: Knobs) -> None:
    """Make few rows a case of its own where a product's rows are of unknown number.

    A knob is the number from which on there are many; 0 for one case.
    """
    found = [x for x in stages(s.function) if kind_of(x) == CONTRACTION]
    if len(found) != 1 or knobs.fixes("instruction", "mma") or not has_wgmma(s):
        return
    stage = found[0]
    if 0 in map(extent_of, stage.loops):  # such stages have no strategy
        return
    try:
        _operands(s, stage)
    except ScheduleError:
        return
    _, rows, columns = sizes_of(stage)
    if rows is not None or (columns or 0) < GROUP_ROWS:
        return
    at = knobs.choice("few_rows", (0, *ROWS), default=cases_of(s, stage)[0])
    if at:
        row, _ = tile_axes(stage) or (None, None)
        assert row is not None
        s.specialize("", row.extent >= at)


def has_wgmma(s: Schedule) -> bool:
    """Whether the target has products of warpgroups."""
    return s.target is not None and "wgmma" in s.target.features


@frozen
class Nest:
    """A product whose loops are tiled, and bound to blocks."""

    tile: Tile
    block: str  # its name
    result: str  # temporary of its sums
    around: str  # innermost loop over tiles
    step: str  # loop over the tiles of steps
    rows: tuple[str, ...]  # loops over the rows of a tile: several are those of a box
    steps: int | None  # how many there are
    count: int  # tiles, of all parts of the steps
    stages: int  # of the ring, if so many fit
    whole: bool  # whether no size of the result is known to be less than a tile's


def _matrices(s: Schedule, knobs: Knobs, stage: Stage) -> None:
    if not has_wgmma(s):
        raise ScheduleError("the target has no products of warpgroups")
    pair = _operands(s, stage)
    tile = _tile(s, knobs, stage)
    group = knobs.choice("group", GROUPS, default=squarest(tile, processors_of(s)))
    sizes = sizes_of(stage)
    count = count_of(sizes, tile, processors_of(s)) * tile.parts
    axes = tile_axes(stage)
    assert axes is not None
    row, column = axes
    (folded,) = stage.driven("reduction")
    batch = [loop.var.name for loop in batches_of(stage)]
    block = stage.name
    result = total = temporary(s, stage)
    padding = tile.rows, tile.columns, tile.depth * tile.parts
    copies = padded_operands(s, stage, padding, (row, column, folded))
    k0, *parts, k1 = s.split(folded.var.name, steps_of(tile))
    for part in parts:
        block, result = s.rfactor(block, part)
    i0, i1 = s.split(row.var.name, [None, tile.rows])
    j0, j1 = s.split(column.var.name, [None, tile.columns])
    *around, j0 = neighbouring(s, j0, group)
    around = [*parts, *batch, *around]
    s.reorder(*around, i0, j0, k0, i1, j1, k1)
    s.bind(i0, "block.y")
    s.bind(j0, "block.x")
    if around:
        s.bind(fused(s, around), "block.z")
    pairs = zip(sizes[1:], (tile.rows, tile.columns), strict=True)
    whole = all(size is None or size >= part for size, part in pairs)
    steps = extent_of(folded)
    nest = Nest(tile, block, result, j0, k0, (i1,), steps, count, _USUAL_STAGES, whole)

    def stage_operands() -> None:
        for operand in pair:
            _, buffer = staged(s, block, operand, copies, k0)
            as_matrix(s, buffer)
            rows = swizzled(tile.depth, _CHUNK)
            s.transform_layout(buffer, paneled() if operand.turned else rows)

    in_roles(s, knobs, stage, nest, stage_operands)
    if parts:
        combine_parts(s, stage.name, readers(s, total))


def in_roles(
    s: Schedule,
    knobs: Knobs,
    stage: Stage,
    nest: Nest,
    stage_operands: Callable[[], None],
) -> None:
    """Multiply by warpgroups what others copy, and run the epilogue on the sums.

    Args:
        stage: The product before it was tiled.
        nest: The product.
        stage_operands: Copies tiles of the operands inside of the loop over steps.
    """
    tile, blocks = nest.tile, _blocks(s, knobs, stage, nest.count)
    dims = sum(extent(s, loop) != 1 for loop in nest.rows)
    write, sums = s.cache_write(nest.block, nest.result, "shared", at=nest.around)
    as_matrix(s, sums)
    if tile.parts == 1:
        epilogues(s, nest.result, write)
    stages, bulk = _staging(s, knobs, stage, nest, write)
    back = _passed(s, write, nest.around, tile, dims) if bulk else ""
    if nest.steps is None:  # there may be no first step to start the sums
        init = s.decompose_reduction(nest.block, nest.step)
        tile.lanes.share(s, init)
    stage_operands()
    fused(s, s.loops(write)[-1 - dims : -1])
    tile.lanes.share(s, write)
    s.transform_layout(sums, fragment_layout(tile.lanes))
    group, _ = s.split(fused(s, nest.rows), [tile.groups, GROUP_ROWS])
    s.tensorize(group, "warpgroup")
    if back:
        s.tensorize(s.loops(back)[-3 - dims], "warpgroup")
    flight = _in_flight(knobs, stage, tile, stages, nest.steps)
    s.pipeline(nest.step, stages, roles=True, blocks=blocks, in_flight=flight)


def _operands(s: Schedule, stage: Stage) -> tuple[Operand, Operand]:
    """The operands of 16 bits, which bulk copies read.

    Raises:
        ScheduleError: they are others.
    """
    pair = operands(stage, _CHUNK, batches=True)
    if FORMS[pair[0].buffer.dtype.name].chunk != _CHUNK:
        raise ScheduleError("warpgroups need 16-bit operands")
    buffers = {operand.buffer for operand in pair}
    if not buffers <= set(s.function.buffers):
        raise ScheduleError("bulk copies read parameters, and an operand is computed")
    if any(buffer.ndim not in MAPPED for buffer in buffers):
        raise ScheduleError("bulk copies read arrays of 2 to 5 dimensions")
    for load in stage.loads:
        _need_no_guard(s, load, stage)
    inner = (*batches_of(stage), *(tile_axes(stage) or ()))[1:]
    if sum(extent_of(loop) is None for loop in inner) > 1:
        raise ScheduleError(
            f"tiles of {stage.name} would be divided by several unknown sizes, for "
            "which ptxas finds no registers in roles"
        )
    return pair


def _need_no_guard(s: Schedule, load: Load, stage: Stage) -> None:
    """Refuse an operand whose tiles would be copied under a condition.

    Bulk copies fill with zeros what is outside of an array, and skip nothing else. So
    rows, columns and steps are all that the array has, and other indices inside it.
    """
    sizes = {axis.var: axis.extent for axis in stage.block.axes}
    known = size_ranges(s.function)
    ranges = known | {var: counted(size) for var, size in sizes.items()}
    tiled = {stage.axis(loop) for loop in stage.loops} - {
        stage.axis(loop) for loop in batches_of(stage)
    }
    for at, length in zip(load.indices, load.buffer.shape, strict=True):
        if isinstance(at, Var) and at in tiled:
            fits = simplify(sizes[at]) == simplify(length)
        else:
            fits = all(prove(test, ranges) for test in (at >= 0, at < length))
        if not fits:
            raise ScheduleError(
                f"bulk copies of {load!r} would need a condition: {at!r} is not known "
                f"to be all of the {length!r} indices there, or one of them"
            )


def steps_of(tile: Tile) -> list[int | None]:
    """The factors of steps: their tiles, which parts take in turn, and one tile."""
    return [None, *([tile.parts] if tile.parts > 1 else []), tile.depth]


def as_matrix(s: Schedule, buffer: str) -> None:
    """Give a temporary of one tile, with one index along other dimensions, two."""
    ndim = find_buffer(s.function, buffer).ndim
    if ndim > 2:
        s.fuse_dims(buffer, [*range(ndim - 1)])


def _in_flight(
    knobs: Knobs, stage: Stage, tile: Tile, stages: int, steps: int | None
) -> int:
    """The knob: steps whose products go on while the next one's begin.

    By default one if a warpgroup is alone, and nothing else occupies the tensor cores
    while it waits. None if there is one step, or if the sums start as zero: ptxas
    serializes products whose sums other instructions define.
    """
    again = f"_{stage.name}" if "in_flight" in knobs.values else ""
    if steps is not None and steps <= tile.depth * tile.parts:
        knobs.absent[f"in_flight{again}"] = (
            f"the products of {stage.name} are one step, with no next one to overlap"
        )
        return 0
    if steps is None:
        knobs.absent[f"in_flight{again}"] = (
            f"the products of {stage.name} are of unknown length, which sums that "
            "start as zero serialize"
        )
        return 0
    alone = tile.groups == 1 and stages > max(_FLIGHTS) + 1  # copies stay ahead
    return knobs.choice(f"in_flight{again}", _FLIGHTS, default=int(alone))


def _passed(s: Schedule, write: str, at: str, tile: Tile, dims: int = 1) -> str:
    """Pass results through shared memory, to be stored in bulk; returns that block.

    Rows of a tile are a box of so many dimensions, the first divided by warpgroups.
    """
    back, out = s.cache_write(write, written(s, write), "shared", at=at)
    as_matrix(s, out)
    s.transform_layout(out, paneled())
    *rows, j = s.loops(back)[-1 - dims :]
    group, row_in = s.split(rows[0], [tile.groups, None])
    panel, column_in = s.split(j, [None, 64])
    s.reorder(group, panel, row_in, *rows[1:], column_in)
    return back


def _blocks(s: Schedule, knobs: Knobs, stage: Stage, tiles: int) -> int | None:
    """The knob: as many blocks as multiprocessors, or None for one of each tile.

    By default that is so if there are more tiles, or sizes are unknown.
    """
    count = processors_of(s)
    again = f"_{stage.name}" if "persistent" in knobs.values else ""
    chosen = knobs.flag(f"persistent{again}", default=tiles > count)
    return count if chosen else None


def _tile(s: Schedule, knobs: Knobs, stage: Stage) -> Tile:
    """The knobs; by default as large as known sizes fill."""
    _, rows, columns = sizes = sizes_of(stage)
    fits = (rows or GROUP_ROWS) >= GROUP_ROWS and (columns or GROUP_ROWS) >= GROUP_ROWS
    return tile_of(knobs, stage, lambda: fastest(s, stage, sizes), fits=fits)


def tile_of(
    knobs: Knobs, stage: Stage, found: Callable[[], Tile], *, fits: bool
) -> Tile:
    """The knobs of a tile, and of the instruction: others if products do not fit it.

    Raises:
        ScheduleError: a knob chooses other instructions.
    """
    again = f"_{stage.name}" if "instruction" in knobs.values else ""
    instruction = knobs.choice(
        f"instruction{again}",
        ("wgmma", "mma"),
        default="wgmma" if fits else "mma",
        why="wgmma where a tile of 64 by 64 is filled",
    )
    if instruction != "wgmma":
        raise ScheduleError("a knob chooses products of warps")
    tile = found()
    return Tile(
        knobs.choice(f"warpgroups{again}", GROUPS_OF_BLOCK, default=tile.groups),
        knobs.choice(f"group_columns{again}", COLUMNS, default=tile.columns),
        knobs.choice(f"step_parts{again}", PARTS, default=tile.parts),
    )


def _staging(
    s: Schedule, knobs: Knobs, stage: Stage, nest: Nest, write: str
) -> tuple[int, bool]:
    """The knobs: stages of the ring, and whether results are stored in bulk.

    Results that fill no whole tile are not.

    Raises:
        ArgumentError: a knob chooses more than the shared memory, or bulk stores of
            what they cannot store.
    """
    tile = nest.tile
    again = f"_{stage.name}" if "ring" in knobs.values else ""
    results = writes(block_of(find_block(s.function, write)))
    stored = len(results) == 1 and all(_is_stored(s, result) for result in results)
    fits = nest.whole and stored
    bulk = knobs.flag(f"bulk_store{again}", default=fits)
    if bulk and not fits:
        raise ArgumentError(
            f"bulk_store{again}=True: {write} does not store tiles of one array of 16 "
            "bits"
        )
    out = 2 * tile.rows * tile.columns if bulk else 0
    each = 2 * tile.depth * (tile.rows + tile.columns)
    shared = s.target.shared_bytes if s.target else 0
    most = (shared - OBJECTS - out) // each
    stages = knobs.choice(
        f"ring{again}",
        _STAGES,
        default=min(nest.stages, most, _STAGES[-1]),
        why="as many as fit",
    )
    if stages > most:
        raise ArgumentError(
            f"ring{again}={stages}: {stages} stages of {each} bytes, {out} of results "
            f"and {OBJECTS} of barriers exceed the {shared} of shared memory; "
            f"{most} stages fit"
        )
    return stages, bulk


def _is_stored(s: Schedule, result: Buffer) -> bool:
    """Whether bulk stores can write a result: rows of 16-bit elements, by 16 bytes."""
    pitch = result.shape[-1]
    whole = isinstance(pitch, Const) and not int(pitch.value) % _CHUNK
    rows = result.ndim in MAPPED and whole
    return rows and result.dtype.bytes == 2 and result in s.function.buffers
