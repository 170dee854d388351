"""Contractions on a CPU: register tiles of rows by vectors, operands packed if needed.

for j_0, i_0 in parallel(...):
    acc = alloc(f32[rows, vectors * lanes], scope="register")
    for k in range(K):
        for i_1 in unrolled(rows):
            for j_1 in unrolled(vectors):
                for j_2 in vectorized(lanes): acc[...] += a[i, k] * b[k, j]
    y[...] = acc

Remainders of a dimension are split off and get smaller tiles of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir.nodes import Const, Load
from tensorlang.schedules import dot_groups, dots
from tensorlang.schedules.blocks import SMALL, by_blocks, chosen
from tensorlang.schedules.plan import Plan, Tile
from tensorlang.schedules.stages import Stage, column_dimension, extent_of, tile_axes
from tensorlang.schedules.strips import by_strips, divided
from tensorlang.schedules.tiling import cut, cut_unknown, extent, is_part, parallelize
from tensorlang.scheduling import Schedule

_WORTH_PACKING: Final = 4  # row tiles that must read a packed strip
_FAR: Final = 8  # strips per row from which a strip's rows are packed
_STEPS: Final = 1 << 10  # iterations of a narrow copy worth a thread
_UNEVEN: Final = 1 << 10  # bytes: row strides of multiples of this conflict in a cache


@dataclass(frozen=True, slots=True)
class _Axes:
    """Loops of a contraction by role."""

    row: str
    column: str
    folded: tuple[str, ...]


def tiles(plan: Plan) -> None:
    """Register tiles over all rows and columns, smaller ones for remainders."""
    s, stage = plan.s, plan.stage
    found = tile_axes(stage)
    if found is None:
        raise ScheduleError(f"block {stage.name!r} is not a contraction")
    row, column = found
    tile = plan.tile(extent_of(row), extent_of(column))
    if dot_groups.products(s, stage) and s.attempt(dot_groups.by_groups, plan, tile):
        return
    if extent_of(row) == 1 and not _in_rows(stage):
        raise ScheduleError("a vector times rows: partial sums in lanes are faster")
    if extent_of(column) == 1:
        raise ScheduleError("rows times a vector: partial sums in lanes are faster")
    folded = tuple(loop.var.name for loop in stage.driven("reduction"))
    axes = _Axes(row.var.name, column.var.name, folded)
    if dots.chosen(plan) and s.attempt(dots.by_dots, plan):
        return
    if (how := chosen(plan)) is not None:
        by_blocks(plan, tile, how)
        return
    if s.attempt(by_strips, plan, tile):
        return
    _pack(s, stage, tile)
    for tall, rows in _cut_rows(s, stage.name, axes.row, tile.rows):
        for part in _cut_columns(s, tall, axes.column, tile):
            _tile(s, part, stage, axes, replace(tile, rows=rows))


def _cut_rows(s: Schedule, block: str, row: str, rows: int) -> list[tuple[str, int]]:
    """Blocks of whole tiles and of the remainder, with the rows of a tile in each.

    A known number of rows leaves one remainder tile; otherwise the remainder is made of
    smaller tiles, so that no reduction loop contains a condition.
    """
    if extent(s, row) is not None:
        return [(part, rows) for part in cut(s, block, row, rows)]
    found: list[tuple[str, int]] = []
    for size in (rows, *(n for n in SMALL if n < rows)):
        if size == 1:
            return [*found, (block, 1)]
        block, rest = cut_unknown(s, block, row, size)
        found.append((block, size))
        block = rest
    return [*found, (block, 1)]


def _cut_columns(s: Schedule, block: str, column: str, tile: Tile) -> list[str]:
    """The blocks of whole tiles, of whole vectors, and of what is narrower than one."""
    parts = cut(s, block, column, tile.vectors * tile.lanes)
    narrow = parts[-1]
    return [*parts[:-1], *cut(s, narrow, column, tile.lanes)]


def _pack(s: Schedule, stage: Stage, tile: Tile) -> None:
    """Pack operands into strips, so that a tile's columns are contiguous."""
    strip = tile.vectors * tile.lanes
    for load in stage.loads:
        at = column_dimension(stage, load)
        if at is None or (at == load.buffer.ndim - 1 and not _far(stage, load, tile)):
            continue
        copy, packed = s.cache_read(stage.name, load.buffer.name, "global")
        given = [f"d{n}" for n in range(load.buffer.ndim)]
        laid = [f"{given[at]} // {strip}", *given[:at], *given[at + 1 :]]
        laid.append(f"{given[at]} % {strip}")
        s.transform_layout(packed, f"lambda {', '.join(given)}: ({', '.join(laid)})")
        if at == load.buffer.ndim - 1:
            s.attempt(_by_rows, s, copy, tile.lanes)
            continue
        block = f"copy_by_columns_{tile.lanes}x{tile.lanes}x{load.buffer.dtype}"
        if not s.attempt(_transpose, s, copy, tile.lanes, block):
            s.attempt(_along_strips, s, copy, at)


def _far(stage: Stage, load: Load, tile: Tile) -> bool:
    """Whether a strip's rows map to few cache sets, so that a copy pays off.

    That happens when the row stride divides a page evenly; and enough rows of the other
    operand must read the copy.
    """
    found = tile_axes(stage)
    assert found is not None
    rows, length = extent_of(found[0]), load.buffer.shape[-1]
    many = rows is None or rows >= _WORTH_PACKING * tile.rows
    if not many or load.buffer.ndim < 2 or not isinstance(length, Const):
        return False
    apart = int(length.value) * load.buffer.dtype.bytes
    strip = tile.vectors * tile.lanes
    return int(length.value) >= _FAR * strip and apart % _UNEVEN == 0


def _by_rows(s: Schedule, copy: str, lanes: int) -> None:
    """Vectorize a copy that keeps its row layout."""
    *outer, columns = s.loops(copy)
    whole = extent(s, columns)
    if whole is None or whole % lanes:
        raise ScheduleError("the rows are not whole vectors")
    _, lane = s.split(columns, [None, lanes])
    s.vectorize(lane)
    parallelize(s, outer)


def _along_strips(s: Schedule, copy: str, at: int) -> None:
    """Copy few columns, in source order: threads would share cache lines."""
    around = s.loops(copy)
    rest = [name for n, name in enumerate(around) if n != at]
    s.reorder(*rest, around[at])
    if (extent(s, rest[0]) or 0) > _STEPS:
        first, _ = s.split(rest[0], [None, _STEPS])
        s.parallel(first)


def _transpose(s: Schedule, copy: str, lanes: int, intrinsic: str) -> None:
    """Copy a matrix in square blocks, transposed in registers where they are whole."""
    around = s.loops(copy)
    if len(around) != 2:
        raise ScheduleError(f"block {copy!r} copies no matrix")
    rows, columns = around
    for loop in (rows, columns):
        cut(s, copy, loop, lanes)
    row, row_in = s.split(rows, [None, lanes])
    column, column_in = s.split(columns, [None, lanes])
    s.reorder(row, column, row_in, column_in)
    s.parallel(row)
    s.tensorize(row_in, intrinsic)


def _in_rows(stage: Stage) -> bool:
    """Whether the columns are contiguous in every operand they index."""
    at = [(column_dimension(stage, load), load.buffer.ndim - 1) for load in stage.loads]
    return all(dimension in (None, last) for dimension, last in at)


def _tile(s: Schedule, block: str, stage: Stage, axes: _Axes, tile: Tile) -> None:
    """Tile the loops around one block: the stage's own or a part split off it."""
    around = s.loops(block)
    i = next(name for name in around if is_part(name, axes.row))
    j = next(name for name in around if is_part(name, axes.column))
    inner = [n for n in around if any(is_part(n, name) for name in axes.folded)]
    outer = [n for n in around if n not in (i, j, *inner)]
    deep, inner = _blocked(s, stage, tile, outer, inner)
    rows = min(tile.rows, extent(s, i) or tile.rows)
    columns = extent(s, j) or tile.vectors * tile.lanes
    lanes = min(tile.lanes, columns)
    i_0, i_1 = s.split(i, [None, rows])
    j_0, j_1, j_2 = s.split(j, [None, min(tile.vectors, columns // lanes), lanes])
    s.reorder(*deep, *outer, j_0, i_0, *inner, i_1, j_1, j_2)
    write, _ = s.cache_write(
        block, stage.output.name, "register", at=i_0, accumulate=True
    )
    for loop in (i_1, j_1):
        s.unroll(loop)
    s.vectorize(j_2)
    _write_back(s, write, i_0, lanes)
    if tile.parallel:
        parallelize(s, [*outer, j_0, i_0])


def _blocked(
    s: Schedule, stage: Stage, tile: Tile, outer: list[str], inner: list[str]
) -> tuple[list[str], list[str]]:
    """Loops over blocks of a deep reduction, if any, and the loops inside a tile."""
    step = tile.vectors * tile.lanes * stage.output.dtype.bytes
    depth = divided(extent(s, inner[-1]), step)
    if depth is None or len(inner) > 1 or outer:
        return [], inner
    k_0, k_1 = s.split(inner[-1], [None, depth])
    return [k_0], [k_1]


def _write_back(s: Schedule, write: str, at: str, lanes: int) -> None:
    """Unroll and vectorize a tile's write-back, which keeps the tile in registers."""
    around = s.loops(write)
    inside = around[around.index(at) + 1 :]
    for loop in inside[:-1]:
        s.unroll(loop)
    for loop in inside[-1:]:
        vector, lane = s.split(loop, [None, lanes])
        s.unroll(vector)
        s.vectorize(lane)
