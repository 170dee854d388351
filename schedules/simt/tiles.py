"""Tiled matrix products: operands in shared memory, sums in registers.

    y[i, j] += x[i, k] * w[j, k]

A block is 16 x 16 threads, each with `rows x columns` sums (`register_tiles`). `depth`
steps of k are staged at once, `stages - 1` iterations ahead; a thread reads its rows
and columns from shared memory in 16-byte loads, and accumulates their outer product.

Convolutions, their gradients and batched products take this form, too (`matrices`);
ragged sizes are zero-padded. With many steps and few tiles, parts of the steps go to
blocks of their own (split-K).
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.schedules.simt.fragments import bind_threads
from tensorlang.schedules.simt.grid import GROUPS, neighbouring
from tensorlang.schedules.simt.matrices import (
    Matrices,
    Sides,
    as_matrices,
    pad,
    sides_of,
)
from tensorlang.schedules.simt.register_tiles import WIDE, RegisterTile
from tensorlang.schedules.simt.staging import Staged, memory_order
from tensorlang.schedules.stages import Stage
from tensorlang.schedules.tiling import extent, fused, written
from tensorlang.scheduling import Knobs, Schedule
from tensorlang.scheduling.analysis.tree import find_buffer

_SUMS: Final = (4, 8, 16)
_DEPTHS: Final = (8, 16, 32)
_WARPS: Final = (2, 4)
_STAGES: Final = (1, 2, 3, 4, 5)
_PARTS: Final = (0, 256, 512, 1024, 2048, 4096)  # steps of a part; 0 is all
_SIDES: Final = (8, 16)  # threads of the usual block along rows and columns
_FEW: Final = 12  # rows or columns that waste too much of a tile
_SHORT: Final = 8  # steps that are not worth staging
_MOST: Final = 128  # sums that leave a thread enough registers
_MOST_DOUBLE: Final = 32  # of 64 bits, where the operands take two registers, too
_TILES: Final = 264  # that occupy a device: two per multiprocessor


@frozen
class Tile:
    """Sums per thread, steps staged at once, steps of a part, stages, block group."""

    sums: RegisterTile
    depth: int
    part: int
    stages: int
    group: int


def tiles(s: Schedule, knobs: Knobs, stage: Stage) -> None:
    """Tile a contraction of two operands.

    Raises:
        ScheduleError: it has another form, or is too small to fill tiles.
    """
    sides = sides_of(stage)
    ahead = s.target is not None and "cp_async" in s.target.features
    wide = any(buffer.dtype.bytes > 4 for buffer in stage.outputs)
    most = _MOST_DOUBLE if wide else _MOST
    tile = _tile(knobs, stage.name, sides, most, ahead=ahead)
    matrices = as_matrices(s, stage, sides)
    rows, columns = tile.sums.sizes
    pad(s, matrices, row=rows, column=columns, step=tile.part or tile.depth)
    block, batch = matrices.block, matrices.loops.get("batch", "")
    if tile.part:
        block, batch = _parts(s, matrices, tile, batch)
    _schedule(s, matrices, tile, block, batch)


def _tile(knobs: Knobs, name: str, sides: Sides, most: int, *, ahead: bool) -> Tile:
    """The knobs; by default as large as rows, columns and registers fill."""
    rows, columns = sides.extent("row"), sides.extent("column")
    steps = sides.extent("step")
    if any(size is not None and size < _FEW for size in (rows, columns)):
        raise ScheduleError(f"{rows} rows and {columns} columns fill no tile")
    if steps is not None and steps < _SHORT:
        raise ScheduleError(f"{steps} steps are not worth a tile")
    own = [
        _per_thread(size, side)
        for size, side in zip((rows, columns), _SIDES, strict=True)
    ]
    while prod(own) > most:
        own[0] //= 2
    part = _part(sides, own)
    if not part:
        own = _enough(sides, own)
    again = f"_{name}" if "rows" in knobs.values else ""  # a further contraction
    why = f"{prod(own)} sums a thread, of {most} that registers hold"
    return Tile(
        RegisterTile(
            knobs.choice(f"rows{again}", _SUMS, default=own[0], why=why),
            knobs.choice(f"columns{again}", _SUMS, default=own[1], why=why),
            knobs.choice(f"warps{again}", _WARPS, default=2),
        ),
        knobs.choice(f"depth{again}", _DEPTHS, default=16),
        knobs.choice(
            f"part{again}",
            _PARTS,
            default=part,
            why="splits the sums, as there are few results" if part else "",
        ),
        knobs.choice(
            f"stages{again}",
            _STAGES,
            default=3 if ahead else 1,
            why="copies run ahead of the sums" if ahead else "no asynchronous copies",
        ),
        knobs.choice(f"group{again}", GROUPS, default=16),
    )


def _per_thread(size: int | None, side: int) -> int:
    """Rows or columns of a thread, for blocks of 64 or 128."""
    return (64 if size is not None and size <= 64 else 128) // side


def _enough(sides: Sides, own: list[int]) -> list[int]:
    """Halve a block's columns, then rows, to 64 if there are too few blocks."""
    for place in (1, 0):
        count = _blocks(sides, own)
        half = min(max(own[place] // 2, 64 // _SIDES[place]), own[place])
        if count and count * 2 < _TILES:
            own = [*own[:place], half, *own[place + 1 :]]
    return own


def _blocks(sides: Sides, own: list[int]) -> int | None:
    """The number of tiles, if known."""
    return sides.tiles([side * sums for side, sums in zip(_SIDES, own, strict=True)])


def _part(sides: Sides, own: list[int]) -> int:
    """The steps of a part if there are too few tiles, otherwise 0."""
    count, steps = _blocks(sides, own), sides.extent("step")
    if count is None or count * 2 > _TILES:
        return 0
    if steps is None:
        return next((part for part in (1024, 256) if part <= sides.at_least), 0)
    wanted = steps * count // _TILES
    parts = [part for part in _PARTS[1:] if part >= max(wanted, _PARTS[1])]
    return parts[0] if parts and steps >= 2 * parts[0] else 0


def _parts(s: Schedule, matrices: Matrices, tile: Tile, batch: str) -> tuple[str, str]:
    """Split the steps into a further batch dimension; another nest combines these."""
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
    loops, own = matrices.loops, tile.sums
    i0, *i = s.split(loops["row"], [None, *own.split(0)])
    j0, *j = s.split(loops["column"], [None, *own.split(1)])
    k0, k1, k2 = s.split(loops["step"], [None, tile.depth // WIDE, WIDE])
    *first, j0 = [batch, j0] if batch else neighbouring(s, j0, tile.group)
    threads, _ = own.order(i, j)
    staged = [
        Staged(
            *made,
            size,
            size // side,
            tile.depth,
            own.threads,
            *memory_order(s, made[0]),
        )
        for made, size, side in zip(matrices.copies, own.sizes, own.sides, strict=True)
    ]
    ways = [operand.along_steps for operand in staged]
    rows, columns = i[3:], j[2:]
    if ways[0]:  # four consecutive steps of one row, for all columns
        each, held = [*rows, k2, *columns], (rows[-1], k1)
    elif ways[1]:
        each, held = [*columns, k2, *rows], (k1, columns[-1])
    else:
        each, held = [k2, *rows, *columns], (k2, k2)
    s.reorder(*first, i0, j0, k0, *threads, k1, *each)
    result = find_buffer(s.function, written(s, block))
    write, sums = s.cache_write(block, result.name, "shared", at=j0)
    if block == matrices.block:
        s.attempt(partial(s.inline, reverse=True), matrices.writer)
    for operand, at in zip(staged, held, strict=True):
        operand.stage(s, k0)
        _load_vectors(s, block, operand, at)
    own.share(s, write, matrices.order[-2:])
    s.transform_layout(sums, own.layout(matrices.order[-2:], result.ndim))
    bind_threads(s, threads, each)
    s.bind(i0, "block.y")
    s.bind(j0, "block.x")
    for loop in first:
        s.bind(loop, "block.z")
    stages = min(tile.stages, extent(s, k0) or tile.stages)
    if stages > 1:
        s.pipeline(k0, stages)


def _load_vectors(s: Schedule, block: str, operand: Staged, at: str) -> None:
    """Load a thread's operands from shared memory to registers, 16 bytes at once."""
    held, _ = s.cache_read(block, operand.buffer, "register", at=at)
    around = s.loops(held)
    loops = list(around[around.index(at) + 1 :])
    if not operand.along_steps:
        loops = [*loops[1:], *s.split(loops[0], [None, WIDE])]
        s.reorder(*loops)
    for loop in loops[:-1]:
        s.unroll(loop)
    s.vectorize(loops[-1])
