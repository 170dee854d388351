"""Matrix products in tiles: a block's operands in shared memory, sums in registers.

    y[i, j] += x[i, k] * w[j, k]

A block is 16 x 16 threads, each of which has `rows x columns` sums that lie 16 apart,
so that neighbouring threads read neighbouring words. `depth` steps of k are staged at
once, k first, in 16-byte loads; a row of the copy is a few words longer than its
numbers, which keeps a warp's stores in different banks.

What is left over at the edges goes the plain way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir.nodes import Const, For, Load
from tensorlang.schedules.cutting import cut_at, fused
from tensorlang.schedules.simt.grid import one_each
from tensorlang.schedules.stages import Stage, extent_of, tile_axes
from tensorlang.schedules.streaming import whole_steps
from tensorlang.scheduling import Knobs, Schedule

SIDE: Final = 16  # threads of a block along rows, and along columns
_SUMS: Final = (2, 4, 8)
_DEPTHS: Final = (8, 16, 32)
_WIDE: Final = 4  # numbers of one load
_BANKS: Final = 32
# a thread's sums lie together, after those of the threads before it
OWN_SUMS: Final = (
    f"lambda i, j: (i % {SIDE} * {SIDE} + j % {SIDE}, i // {SIDE}, j // {SIDE})"
)


@dataclass(frozen=True, slots=True)
class Tile:
    """Sums of one thread, and the steps that are staged at once."""

    rows: int
    columns: int
    depth: int


def tiles(s: Schedule, knobs: Knobs, stage: Stage) -> None:
    """A contraction of two operands over one long loop, in tiles."""
    axes, folded = tile_axes(stage), stage.driven("reduction")
    if axes is None or len(folded) != 1 or len(stage.driven("spatial")) != 2:
        raise ScheduleError("tiles are for the product of two matrices")
    if len(stage.loads) != 2 or any(len(load.indices) != 2 for load in stage.loads):
        raise ScheduleError("tiles are for two operands")
    tile = Tile(
        knobs.choice("rows", _SUMS, default=8),
        knobs.choice("columns", _SUMS, default=8),
        knobs.choice("depth", _DEPTHS, default=16),
    )
    row, column = axes
    _whole(folded[0], tile.depth)
    _whole(column, SIDE * tile.columns)
    block = _cut_rows(s, stage, row, SIDE * tile.rows)
    _tile(s, block, stage, tile)


def _whole(loop: For, size: int) -> None:
    length = extent_of(loop)
    if length is None or length % size:
        raise ScheduleError(f"loop {loop.var.name} is not a multiple of {size}")


def _cut_rows(s: Schedule, stage: Stage, row: For, size: int) -> str:
    """The block of the whole tiles; the rows that are left go a result to a thread."""
    whole = whole_steps(row.extent, size)
    if whole == row.extent:
        return stage.name
    if isinstance(whole, Const) and whole.value == 0:
        raise ScheduleError("there are fewer rows than a tile has")
    main, rest = cut_at(s, stage.name, row.var.name, whole)
    loops = list(s.loops(rest))
    thread = one_each(s, loops[:2], 64)
    s.cache_write(rest, stage.output.name, "register", at=thread)
    return main


def _tile(s: Schedule, block: str, stage: Stage, tile: Tile) -> None:
    rows, columns = SIDE * tile.rows, SIDE * tile.columns
    i, j, k = s.loops(block)
    i0, i1 = s.split(i, [None, rows])
    j0, j1 = s.split(j, [None, columns])
    k0, k1 = s.split(k, [None, tile.depth])
    s.reorder(i0, j0, k0, k1, i1, j1)
    write, sums = s.cache_write(block, stage.output.name, "shared", at=j0)
    (folded,) = stage.driven("reduction")
    for load, size in _operands(stage, rows, columns):
        copy, made = s.cache_read(block, load.buffer.name, "shared", at=k0)
        pitch = size + _BANKS // tile.depth
        _stage(s, copy, made, pitch, first=load.indices[0] == stage.axis(folded))
    _threads(s, block, tile, folded=k1)
    _threads(s, write, tile, folded="")
    s.transform_layout(sums, OWN_SUMS)
    s.bind(i0, "block.y")
    s.bind(j0, "block.x")


def _operands(stage: Stage, rows: int, columns: int) -> list[tuple[Load, int]]:
    """Each operand, and how many rows or columns of it a block needs."""
    column = stage.axis(stage.driven("spatial")[1])
    return [(load, columns if column in load.indices else rows) for load in stage.loads]


def _threads(s: Schedule, block: str, tile: Tile, folded: str) -> None:
    """A tile's rows and columns among threads, sums of one thread 16 apart."""
    *_, i1, j1 = s.loops(block)
    ir, it = s.split(i1, [tile.rows, SIDE])
    jr, jt = s.split(j1, [tile.columns, SIDE])
    s.reorder(it, jt, *([folded] if folded else []), ir, jr)
    s.bind(fused(s, [it, jt]), "thread.x")
    s.unroll(ir)
    s.unroll(jr)


def _stage(s: Schedule, copy: str, buffer: str, pitch: int, *, first: bool) -> None:
    """A tile of an operand to shared memory, where k comes first; so it may before."""
    order = "k, i" if first else "i, k"
    s.transform_layout(buffer, f"lambda {order}: (k * {pitch} + i,)")
    whole = fused(s, s.loops(copy)[-2:])
    steps, thread, lane = s.split(whole, [None, SIDE * SIDE, _WIDE])
    s.reorder(thread, steps, lane)
    s.bind(thread, "thread.x")
    s.vectorize(lane)
