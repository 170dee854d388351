"""Contractions by strips of columns, each packed right where it is used.

for j_0 in parallel(columns // 64):
    strip = alloc(f32[K, 64])                   # stays in the L2 cache
    for n, k in blocks of 16 x 16: strip[...] = w[...], transposed in registers
    for i_0 in range(rows // 6): a tile of 6 x 64 sums over all of K
    for i_tail in ...:           the remainder, in tiles of 4 and of 1

Compared with packing everything first, nothing is written to memory and read back, and
no thread waits for another; but there must be enough strips to distribute. Packed
operands are used as they are.
"""

from __future__ import annotations

from math import prod
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir.contents import blocks
from tensorlang.ir.nodes import Const, Load
from tensorlang.schedules.plan import Plan, Tile
from tensorlang.schedules.stages import Stage, column_dimension, extent_of, tile_axes
from tensorlang.schedules.streaming import loop_named, whole_steps
from tensorlang.schedules.tiling import extent, is_part, parallelize
from tensorlang.scheduling import Schedule

_MOST_BYTES: Final = 1 << 19  # of a strip: half of an L2 cache
_BLOCK_BYTES: Final = 1 << 18  # of a block of a larger strip
_STRIPS_A_THREAD: Final = 4
_WORTH_PACKING: Final = 24  # rows
SMALL: Final = (4, 1)  # rows of the tiles for a remainder of unknown length


def by_strips(plan: Plan, tile: Tile) -> None:
    """Schedule a whole contraction.

    Raises:
        ScheduleError: the sizes do not suit.
    """
    s, stage = plan.s, plan.stage
    found = tile_axes(stage)
    if found is None:
        raise ScheduleError(f"block {stage.name!r} is not a contraction")
    row, column = found
    load, width = _operand(plan, stage, tile), tile.vectors * tile.lanes
    folded = [loop.var.name for loop in stage.driven("reduction")]
    deep: list[str] = []
    copied = None
    if (depth := _depth(stage, load, width)) is not None:
        outside, inside = s.split(folded[-1], [None, depth])
        deep, folded = [outside], [inside]
    if not is_packed(stage, load, width):
        copied = s.cache_read(stage.name, load.buffer.name, "global")
    around = s.loops(stage.name)
    first, inside = s.split(column.var.name, [None, width])
    own = {row.var.name, column.var.name, *deep, *folded}
    outer = [name for name in around if name not in own]
    s.reorder(*outer, first, *deep, row.var.name, inside, *folded)
    for part, rows in _cut_rows(s, stage.name, row.var.name, tile.rows):
        _tile(s, part, stage, (row.var.name, inside, *folded), rows, tile.lanes)
    if copied:
        s.compute_at(copied[0], [first, *deep][-1])
        pack(s, stage, load, *copied, tile.lanes)
    parallelize(s, [*outer, first])


def _operand(plan: Plan, stage: Stage, tile: Tile) -> Load:
    """The operand the columns index, if its strips can be used one by one."""
    found = tile_axes(stage)
    assert found is not None
    column, width = found[1], tile.vectors * tile.lanes
    loads = [n for n in stage.loads if column_dimension(stage, n) is not None]
    length = extent_of(column)
    depth = [extent_of(loop) for loop in stage.driven("reduction")]
    if len(loads) != 1 or length is None or length % width or None in depth:
        raise ScheduleError("the strips are not whole, or of unknown depth")
    threads = plan.s.target.threads if plan.s.target else 1
    if not tile.parallel or length // width < _STRIPS_A_THREAD * (threads - 1):
        raise ScheduleError("there are too few strips to distribute")
    (load,) = loads
    rows, in_rows = (
        extent_of(found[0]),
        column_dimension(stage, load) == load.buffer.ndim - 1,
    )
    few = rows is not None and rows < _WORTH_PACKING
    if in_rows and few and not is_packed(stage, load, width):
        raise ScheduleError("too few rows read a strip that is contiguous already")
    _depth(stage, load, width)
    return load


def _depth(stage: Stage, load: Load, width: int) -> int | None:
    """The reduction steps per block, if a whole strip does not fit the cache.

    Raises:
        ScheduleError: no block of a fitting size divides the steps.
    """
    depth = [extent_of(loop) or 1 for loop in stage.driven("reduction")]
    step = width * load.buffer.dtype.bytes
    if prod(depth) * step <= _MOST_BYTES:
        return None
    found = divided(depth[0], step)
    if len(depth) > 1 or found is None:
        raise ScheduleError("a strip does not fit the cache, and no block divides it")
    return found


def divided(steps: int | None, step: int) -> int | None:
    """The reduction steps per block, if a whole strip does not fit the cache.

    Args:
        steps: The number of steps, if known.
        step: Bytes of the strip read per step.
    """
    if steps is None or steps * step <= _MOST_BYTES:
        return None
    most = _BLOCK_BYTES // step
    fits = [n for n in range(most // 4, most + 1) if steps % n == 0]
    return fits[-1] if fits else None


def is_packed(stage: Stage, load: Load, width: int) -> bool:
    """Whether the columns are already in strips that combine to `width`."""
    last = load.buffer.shape[-1]
    if column_dimension(stage, load) != load.buffer.ndim - 1 or not isinstance(
        last, Const
    ):
        return False
    return load.buffer.ndim > 2 and width % max(int(last.value), 1) == 0


def _in_rows(stage: Stage, load: Load) -> bool:
    """Whether the columns are contiguous."""
    return column_dimension(stage, load) == load.buffer.ndim - 1


def _cut_rows(s: Schedule, block: str, row: str, rows: int) -> list[tuple[str, int]]:
    """Blocks of whole tiles and of the remainder, with the rows of a tile in each."""
    length = extent(s, row)
    if length is not None:
        if length <= rows or length % rows == 0:
            return [(block, min(rows, max(length, 1)))]
        main, rest = _cut(s, block, row, length // rows * rows)
        return [(main, rows), (rest, length % rows)]
    found: list[tuple[str, int]] = []
    for size in (rows, *(n for n in SMALL if n < rows)):
        if size == 1:
            break
        loop = next(name for name in s.loops(block) if is_part(name, row))
        whole = whole_steps(s, loop_named(s, loop).extent, size)
        block, rest = _cut(s, block, row, whole)
        found.append((block, size))
        block = rest
    return [*found, (block, 1)]


def _cut(s: Schedule, block: str, row: str, at: object) -> tuple[str, str]:
    """Partition a strip's rows; returns the blocks before and after the cut."""
    loop = next(name for name in s.loops(block) if is_part(name, row))
    before = {b.name for b in blocks(s.function)}
    s.partition(loop, at)  # type: ignore[arg-type]
    return block, next(b.name for b in blocks(s.function) if b.name not in before)


def _tile(  # noqa: PLR0917 - the parts of a tile
    s: Schedule,
    block: str,
    stage: Stage,
    names: tuple[str, ...],
    rows: int,
    lanes: int,
) -> None:
    """Tile the loops around one block."""
    around = s.loops(block)
    row, inside, *folded = (
        next(name for name in around if is_part(name, wanted)) for wanted in names
    )
    tall, i = s.split(row, [None, rows])
    vector, lane = s.split(inside, [None, lanes])
    s.reorder(tall, *folded, i, vector, lane)
    write, _ = s.cache_write(
        block, stage.output.name, "register", at=tall, accumulate=True
    )
    for loop in (i, vector):
        s.unroll(loop)
    s.vectorize(lane)
    write_back(s, write, tall, lanes)


def write_back(s: Schedule, write: str, at: str, lanes: int) -> None:
    """Unroll and vectorize a tile's write-back, which keeps the tile in registers."""
    own = s.loops(write)
    inside = own[own.index(at) + 1 :]
    if not inside:
        return
    *others, last = inside
    if (extent(s, last) or 0) > lanes:
        vector, last = s.split(last, [None, lanes])
        others.append(vector)
    for loop in others:
        s.unroll(loop)
    s.vectorize(last)


def pack(  # noqa: PLR0917 - the parts of a copy
    s: Schedule, stage: Stage, load: Load, copy: str, strip: str, lanes: int
) -> None:
    """Pack one strip: transposed in registers, or row by row."""
    at, rank = column_dimension(stage, load), load.buffer.ndim
    assert at is not None
    given = [f"d{n}" for n in range(rank)]
    if at == rank - 1:
        last = s.loops(copy)[-1]
        _, lane = s.split(last, [None, lanes])
        s.vectorize(lane)
        return
    laid = [*given[:at], *given[at + 1 :], given[at]]
    s.transform_layout(strip, f"lambda {', '.join(given)}: ({', '.join(laid)})")
    s.attempt(
        _transpose,
        s,
        copy,
        lanes,
        f"copy_by_columns_{lanes}x{lanes}x{load.buffer.dtype}",
    )


def _transpose(s: Schedule, copy: str, lanes: int, intrinsic: str) -> None:
    """Copy a matrix's strip in square blocks, transposed in registers."""
    column, depth = s.loops(copy)[-2:]
    length = extent(s, depth)
    if length is None or length < lanes:
        raise ScheduleError("the strip is not deep enough for a block")
    if length % lanes:
        s.reorder(depth, column)
        s.partition(depth, length // lanes * lanes)
    column_0, column_1 = s.split(column, [None, lanes])
    depth_0, depth_1 = s.split(depth, [None, lanes])
    s.reorder(column_0, depth_0, column_1, depth_1)
    s.tensorize(column_1, intrinsic)
