"""Packing a contraction's operands: strips of columns, so that a tile reads in order.

An operand is packed whole, in strips, before the contraction; or block by block, inside
its loops. Where its columns are not contiguous, squares are transposed in registers.
"""

from __future__ import annotations

from tensorlang.errors import ScheduleError
from tensorlang.ir.nodes import Const, Load, Var
from tensorlang.schedules.contraction.space import Tile
from tensorlang.schedules.cost.core import PAGE
from tensorlang.schedules.stages import Stage, column_dimension
from tensorlang.schedules.streaming import loop_named
from tensorlang.schedules.tiling import cut, cut_unknown, extent, in_lanes, parallelize
from tensorlang.scheduling import Schedule
from tensorlang.scheduling.analysis.tree import constant, find_buffer


def in_rows(stage: Stage) -> bool:
    """Whether the columns are contiguous in every operand they index."""
    at = [(column_dimension(stage, load), load.buffer.ndim - 1) for load in stage.loads]
    return all(dimension in (None, last) for dimension, last in at)


def is_packed(stage: Stage, load: Load, width: int) -> bool:
    """Whether the columns are already in strips that combine to `width`."""
    last = load.buffer.shape[-1]
    if column_dimension(stage, load) != load.buffer.ndim - 1 or not isinstance(
        last, Const
    ):
        return False
    return load.buffer.ndim > 2 and width % max(int(last.value), 1) == 0


def pack_whole(s: Schedule, stage: Stage, tile: Tile, *, rows: bool = True) -> None:
    """Pack the operands of the columns into strips as wide as a tile.

    Args:
        stage: The contraction.
        rows: Whether operands whose columns are contiguous are packed, too.
    """
    strip = tile.vectors * tile.lanes
    for load in stage.loads:
        at, rank = column_dimension(stage, load), load.buffer.ndim
        if at is None or (at == rank - 1 and not rows) or is_packed(stage, load, strip):
            continue
        copy, packed = s.cache_read(stage.name, load.buffer.name, "global")
        _in_strips(s, packed, rank, at, strip)
        if at == rank - 1:
            s.attempt(_by_rows, s, copy, tile.lanes)
        elif not s.attempt(_transpose, s, copy, tile.lanes, _squares(load, tile.lanes)):
            s.attempt(_along_strips, s, copy, at, PAGE // load.buffer.dtype.bytes)


def pack_strips(
    s: Schedule, load: Load, at: int, copied: tuple[str, str], tile: Tile
) -> None:
    """Pack a block where it is used: row by row, or transposed in registers.

    Strips as wide as a tile are contiguous each, if the block has several; columns in
    groups of some other width stay as they are.

    Args:
        load: The operand.
        at: The dimension of the columns.
        copied: The block that copies it, and the copy's name.
        tile: The register tile.
    """
    (copy, strips), rank = copied, load.buffer.ndim
    width, lanes = tile.vectors * tile.lanes, tile.lanes
    columns = constant(find_buffer(s.function, strips).shape[at])
    plain = isinstance(load.indices[at], Var)
    if plain and columns is not None and columns > width:
        _in_strips(s, strips, rank, at, width)
    elif at < rank - 1:
        given = [f"d{n}" for n in range(rank)]
        laid = [*given[:at], *given[at + 1 :], given[at]]
        s.transform_layout(strips, f"lambda {', '.join(given)}: ({', '.join(laid)})")
    if at < rank - 1:
        s.attempt(_transpose_strip, s, copy, lanes, _squares(load, lanes))
        return
    _, lane = s.split(s.loops(copy)[-1], [None, lanes])
    s.vectorize(lane)


def _in_strips(s: Schedule, packed: str, rank: int, at: int, width: int) -> None:
    """Lay out a copy in strips of so many columns, each contiguous."""
    given = [f"d{n}" for n in range(rank)]
    laid = [f"{given[at]} // {width}", *given[:at], *given[at + 1 :]]
    laid.append(f"{given[at]} % {width}")
    s.transform_layout(packed, f"lambda {', '.join(given)}: ({', '.join(laid)})")


def _squares(load: Load, lanes: int) -> str:
    """The intrinsic that transposes a square in registers."""
    return f"copy_by_columns_{lanes}x{lanes}x{load.buffer.dtype}"


def _by_rows(s: Schedule, copy: str, lanes: int) -> None:
    """Vectorize a copy that keeps its row layout."""
    *outer, columns = s.loops(copy)
    in_lanes(s, loop_named(s, columns), lanes)
    parallelize(s, outer)


def _along_strips(s: Schedule, copy: str, at: int, steps: int) -> None:
    """Copy few columns, in source order: threads would share cache lines.

    Chunks of so many steps, a page of memory, go to threads.
    """
    around = s.loops(copy)
    if len(around) < max(at + 1, 2):
        raise ScheduleError(f"block {copy!r} has no loop around its columns")
    rest = [name for n, name in enumerate(around) if n != at]
    s.reorder(*rest, around[at])
    if (extent(s, rest[0]) or 0) > steps:
        first, _ = s.split(rest[0], [None, steps])
        s.parallel(first)


def _transpose(s: Schedule, copy: str, lanes: int, intrinsic: str) -> None:
    """Copy a matrix in square blocks, transposed in registers where they are whole."""
    around = s.loops(copy)
    if len(around) != 2:
        raise ScheduleError(f"block {copy!r} copies no matrix")
    rows, columns = around
    for loop in (rows, columns):
        (cut_unknown if extent(s, loop) is None else cut)(s, copy, loop, lanes)
    row, row_in = s.split(rows, [None, lanes])
    column, column_in = s.split(columns, [None, lanes])
    s.reorder(row, column, row_in, column_in)
    s.parallel(row)
    s.tensorize(row_in, intrinsic)


def _transpose_strip(s: Schedule, copy: str, lanes: int, intrinsic: str) -> None:
    """Copy a matrix's strip in square blocks, transposed in registers."""
    around = s.loops(copy)
    if len(around) < 2:
        raise ScheduleError(f"block {copy!r} copies no matrix")
    column, depth = around[-2:]
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
