"""Contractions on a CPU: register tiles of rows by vectors, operands packed at need.

for j_0, i_0 in parallel(...):
    acc = alloc(f32[rows, vectors * lanes], scope="register")
    for k in range(K):
        for i_1 in unrolled(rows):
            for j_1 in unrolled(vectors):
                for j_2 in vectorized(lanes): acc[...] += a[i, k] * b[k, j]
    y[...] = acc

What does not divide is cut off and gets a smaller tile of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir.nodes import Const, Load
from tensorlang.schedules import dot_pairs
from tensorlang.schedules.plan import Plan, Tile
from tensorlang.schedules.stages import (
    Stage,
    column_dimension,
    extent_of,
    tile_axes,
)
from tensorlang.schedules.strips import SMALL, by_strips, divided
from tensorlang.schedules.tiling import (
    attempt,
    cut,
    cut_unknown,
    extent,
    is_part,
    shared,
)
from tensorlang.scheduling import Schedule

_WORTH_PACKING: Final = 4  # tiles of rows that read a packed strip
_FAR: Final = 8  # strips in a row, from which on a strip's rows are packed
_STEPS: Final = 1 << 10  # of a copy of few columns, that are worth a thread
_UNEVEN: Final = 1 << 10  # bytes: rows a multiple of this apart crowd a cache


@dataclass(frozen=True, slots=True)
class _Axes:
    """The loops of a contraction by what they are for."""

    row: str
    column: str
    folded: tuple[str, ...]


def tiles(plan: Plan) -> None:
    """Tiles over all rows and columns, whole ones and what is left."""
    s, stage = plan.s, plan.stage
    found = tile_axes(stage)
    if found is None:
        raise ScheduleError(f"block {stage.name!r} is no contraction")
    row, column = found
    if extent_of(row) == 1 and not _in_rows(stage):
        raise ScheduleError("a vector by rows: partial sums along them are faster")
    if extent_of(column) == 1:
        raise ScheduleError("rows by a vector: partial sums along them are faster")
    tile = plan.tile(extent_of(row), extent_of(column))
    folded = tuple(loop.var.name for loop in stage.driven("reduction"))
    axes = _Axes(row.var.name, column.var.name, folded)
    if dot_pairs.possible(s, stage, tile) and attempt(
        s, _by_pairs, s, stage, axes, tile
    ):
        return
    if attempt(s, by_strips, plan, tile):
        return
    _pack(s, stage, tile)
    for tall, rows in _cut_rows(s, stage.name, axes.row, tile.rows):
        for part in _cut_columns(s, tall, axes.column, tile):
            _tile(s, part, stage, axes, replace(tile, rows=rows))


def _by_pairs(s: Schedule, stage: Stage, axes: _Axes, tile: Tile) -> None:
    """All tiles by the processor's dot products of bf16 pairs."""
    instruction = dot_pairs.pack(s, stage)
    names = axes.row, axes.column, axes.folded[0]
    for tall, rows in _cut_rows(s, stage.name, axes.row, tile.rows):
        for part in cut(s, tall, axes.column, tile.vectors * tile.lanes):
            how = replace(tile, rows=rows)
            dot_pairs.tile(s, part, stage, names, how, instruction)


def _cut_rows(s: Schedule, block: str, row: str, rows: int) -> list[tuple[str, int]]:
    """The blocks of whole tiles and of the rest, and the rows of a tile in each.

    Where the number of rows is known, the rest is one tile; else it is made of smaller
    ones, so that no loop over the reduction holds a condition.
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
    """The blocks of whole tiles, of whole vectors, and of what is less than one."""
    parts = cut(s, block, column, tile.vectors * tile.lanes)
    narrow = parts[-1]
    return [*parts[:-1], *cut(s, narrow, column, tile.lanes)]


def _pack(s: Schedule, stage: Stage, tile: Tile) -> None:
    """Copies of the operands in strips: a tile's columns are neighbours."""
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
            attempt(s, _by_rows, s, copy, tile.lanes)
            continue
        block = f"copy_by_columns_{tile.lanes}x{tile.lanes}x{load.buffer.dtype}"
        if not attempt(s, _transpose, s, copy, tile.lanes, block):
            attempt(s, _along_strips, s, copy, at)


def _far(stage: Stage, load: Load, tile: Tile) -> bool:
    """Whether a strip's rows share few places of a cache, so that a copy pays.

    They do where their distance divides a page evenly; and enough rows of the other
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
    """A copy whose rows stay rows: in vectors."""
    *outer, columns = s.loops(copy)
    whole = extent(s, columns)
    if whole is None or whole % lanes:
        raise ScheduleError("the rows are not whole vectors")
    _, lane = s.split(columns, [None, lanes])
    s.vectorize(lane)
    shared(s, outer)


def _along_strips(s: Schedule, copy: str, at: int) -> None:
    """A copy of few columns, written as it lies: threads would share its lines."""
    around = s.loops(copy)
    rest = [name for n, name in enumerate(around) if n != at]
    s.reorder(*rest, around[at])
    if (extent(s, rest[0]) or 0) > _STEPS:
        first, _ = s.split(rest[0], [None, _STEPS])
        s.parallel(first)


def _transpose(s: Schedule, copy: str, lanes: int, intrinsic: str) -> None:
    """A matrix's copy in square blocks, turned in registers where they are whole."""
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
    """Whether the columns are neighbours in all operands that they index."""
    at = [(column_dimension(stage, load), load.buffer.ndim - 1) for load in stage.loads]
    return all(dimension in (None, last) for dimension, last in at)


def _tile(s: Schedule, block: str, stage: Stage, axes: _Axes, tile: Tile) -> None:
    """The tile's loops around one block, which is the stage's or a part of it."""
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
        shared(s, [*outer, j_0, i_0])


def _blocked(
    s: Schedule, stage: Stage, tile: Tile, outer: list[str], inner: list[str]
) -> tuple[list[str], list[str]]:
    """The loops over blocks of a deep reduction, if any, and those inside of a tile."""
    step = tile.vectors * tile.lanes * stage.output.dtype.bytes
    depth = divided(extent(s, inner[-1]), step)
    if depth is None or len(inner) > 1 or outer:
        return [], inner
    k_0, k_1 = s.split(inner[-1], [None, depth])
    return [k_0], [k_1]


def _write_back(s: Schedule, write: str, at: str, lanes: int) -> None:
    """The tile's own loops, written out: it has to stay in registers."""
    around = s.loops(write)
    inside = around[around.index(at) + 1 :]
    for loop in inside[:-1]:
        s.unroll(loop)
    for loop in inside[-1:]:
        vector, lane = s.split(loop, [None, lanes])
        s.unroll(vector)
        s.vectorize(lane)
