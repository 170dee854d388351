"""Matrix products in tiles: a block's operands in shared memory, sums in registers.

    y[i, j] += x[i, k] * w[j, k]

A block is 16 x 16 threads, each of which has `rows x columns` sums side by side.
`depth` steps of k are staged at once; of each of them a thread reads its rows and its
columns in 16-byte loads, and multiplies each with each.

Convolutions, their gradients and products of batches are such products, too
(`matrices`); so are sizes that fill no tile, whose rest is zeros. Where the steps are
many and the tiles few, parts of the steps go to blocks of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir.visit import blocks, writes
from tensorlang.schedules.cutting import fused, tried
from tensorlang.schedules.generic import stage_named
from tensorlang.schedules.simt.matrices import Matrices, Sides, as_matrices, sides_of
from tensorlang.schedules.simt.staging import WIDE, Staged
from tensorlang.schedules.stages import Stage, extent_of
from tensorlang.scheduling import Knobs, Schedule

SIDE: Final = 16  # threads of a block along rows, and along columns
_SUMS: Final = (4, 8)
_DEPTHS: Final = (8, 16, 32)
_PARTS: Final = (0, 256, 512, 1024, 2048, 4096)  # steps of a part; 0 is all
_FEW: Final = 12  # rows or columns that waste too much of a tile
_SHORT: Final = 8  # steps that are not worth staging
_TILES: Final = 264  # that keep a device busy


@dataclass(frozen=True, slots=True)
class Tile:
    """Sums of one thread, the steps that are staged at once, those of a block."""

    rows: int
    columns: int
    depth: int
    part: int

    @property
    def sizes(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        return SIDE * self.rows, SIDE * self.columns


def tiles(s: Schedule, knobs: Knobs, stage: Stage) -> None:
    """A contraction of two operands, in tiles.

    Raises:
        ScheduleError: it is of another form, or too small to fill tiles.
    """
    sides = sides_of(stage)
    tile = _tile(knobs, stage.name, sides)
    matrices = as_matrices(s, stage, sides)
    _pad(s, matrices, tile)
    block, batch = matrices.block, matrices.loops.get("batch", "")
    if tile.part:
        block, batch = _parts(s, matrices, tile, batch)
    _schedule(s, matrices, tile, block, batch)


def _tile(knobs: Knobs, name: str, sides: Sides) -> Tile:
    """The knobs; by default as large as rows and columns fill."""
    rows, columns = sides.extent("row"), sides.extent("column")
    steps = sides.extent("step")
    if any(size is not None and size < _FEW for size in (rows, columns)):
        raise ScheduleError(f"{rows} rows and {columns} columns fill no tile")
    if steps is not None and steps < _SHORT:
        raise ScheduleError(f"{steps} steps are not worth a tile")
    own = [_own(size) for size in (rows, columns)]
    again = f"_{name}" if "rows" in knobs.values else ""  # has sizes of its own
    return Tile(
        knobs.choice(f"rows{again}", _SUMS, default=own[0]),
        knobs.choice(f"columns{again}", _SUMS, default=own[1]),
        knobs.choice(f"depth{again}", _DEPTHS, default=16),
        knobs.choice(f"part{again}", _PARTS, default=_part(sides, own)),
    )


def _own(size: int | None) -> int:
    return 4 if size is not None and size <= SIDE * 4 else 8


def _part(sides: Sides, own: list[int]) -> int:
    """The steps of a part, where tiles alone are too few: 0 where they are enough."""
    count = 1
    for group, sums in zip(("row", "column"), own, strict=True):
        size = sides.extent(group)
        if size is None:
            return 0
        count *= -(-size // (SIDE * sums))
    steps, batches = sides.extent("step"), sides.extent("batch")
    if batches is None or count * batches * 2 > _TILES:
        return 0
    if steps is None:
        return next((part for part in (1024, 256) if part <= sides.at_least), 0)
    wanted = steps * count * batches // _TILES
    parts = [part for part in _PARTS[1:] if part >= max(wanted, _PARTS[1])]
    return parts[0] if parts and steps >= 2 * parts[0] else 0


def _pad(s: Schedule, matrices: Matrices, tile: Tile) -> None:
    """Rows, columns and steps in wholes of what is cut from them."""
    rows, columns = tile.sizes
    wanted = {"row": rows, "column": columns, "step": tile.part or tile.depth}
    found = stage_named(s, matrices.block)
    assert found is not None
    by_loop = {matrices.loops[group]: size for group, size in wanted.items()}
    driving = {axis.var: axis.value for axis in found.block.axes}
    sizes = {loop.var: loop for loop in found.loops}
    multiples = [
        by_loop.get(getattr(driving[axis.var], "name", ""), 1)
        for axis in found.block.axes
    ]
    ragged = any(
        (extent_of(sizes[axis.value]) or 1) % m or extent_of(sizes[axis.value]) is None  # type: ignore[index]
        for axis, m in zip(found.block.axes, multiples, strict=True)
        if m > 1
    )
    if ragged:
        s.pad(matrices.block, multiples)


def _parts(s: Schedule, matrices: Matrices, tile: Tile, batch: str) -> tuple[str, str]:
    """A batch for each part of the steps; another nest folds these."""
    step = matrices.loops["step"]
    outer, inner = s.split(step, [None, tile.part])
    block, _ = s.rfactor(matrices.block, outer)
    matrices.loops["step"] = inner
    order = [outer, *([batch] if batch else [])]
    s.reorder(*order, matrices.loops["row"], matrices.loops["column"], inner)
    return block, fused(s, order)


def _schedule(
    s: Schedule, matrices: Matrices, tile: Tile, block: str, batch: str
) -> None:
    rows, columns = tile.sizes
    loops = matrices.loops
    i0, it, *ir = s.split(loops["row"], _factors(tile.rows))
    j0, jt, *jr = s.split(loops["column"], _factors(tile.columns))
    k0, k1, k2 = s.split(loops["step"], [None, tile.depth // WIDE, WIDE])
    first = [batch] if batch else []
    s.reorder(*first, i0, j0, k0, it, jt, k1, k2, *ir, *jr)
    (result,) = next(writes(b) for b in blocks(s.function) if b.name == block)
    write, sums = s.cache_write(block, result.name, "shared", at=j0)
    if block == matrices.block:
        tried(s, _written_by, s, matrices.writer)
    sizes = zip((rows, columns), (tile.rows, tile.columns), strict=True)
    for (copy, buffer), (size, own) in zip(matrices.copies, sizes, strict=True):
        staged = Staged(size, own, tile.depth, SIDE * SIDE)
        staged.stage(s, copy, buffer, k0)
        held, _ = s.cache_read(block, buffer, "register", at=k2)
        _in_fours(s, held)
    _share(s, write, matrices.order)
    s.transform_layout(sums, _own_sums(matrices.order, result.ndim, tile))
    for loop in (k2, *ir, *jr):
        s.unroll(loop)
    s.bind(fused(s, (it, jt)), "thread.x")
    s.bind(i0, "block.y")
    s.bind(j0, "block.x")
    for loop in first:
        s.bind(loop, "block.z")


def _factors(own: int) -> list[int | None]:
    """Blocks, threads, and what a thread has: fours."""
    return [None, SIDE, *([own // WIDE] if own > WIDE else []), WIDE]


def _written_by(s: Schedule, writer: str) -> None:
    s.inline(writer, reverse=True)


def _in_fours(s: Schedule, copy: str) -> None:
    """A thread's numbers of one step, from shared memory to registers."""
    four, lane = s.split(s.loops(copy)[-1], [None, WIDE])
    s.unroll(four)
    s.vectorize(lane)


def _share(s: Schedule, write: str, order: tuple[str, ...]) -> None:
    """The tile written back by the threads that have its sums."""
    loops = dict(zip(order[-2:], s.loops(write)[-2:], strict=True))
    it, i = s.split(loops["row"], [SIDE, None])
    jt, jr, jv = s.split(loops["column"], [SIDE, None, WIDE])
    s.reorder(it, jt, i, jr, jv)
    s.bind(fused(s, (it, jt)), "thread.x")
    s.unroll(i)
    s.unroll(jr)
    s.vectorize(jv)


def _own_sums(order: tuple[str, ...], ndim: int, tile: Tile) -> str:
    """A thread's sums lie together, after those of the threads before it."""
    names = [*(f"b{n}" for n in range(ndim - 2)), *(name[0] for name in order[-2:])]
    r, c = tile.rows, tile.columns
    places = f"r // {r} * {SIDE} + c // {c}, r % {r}, c % {c}"
    return f"lambda {', '.join(names)}: ({places})"
