"""Contractions by strips of columns, each packed right where it is used.

for j_0 in parallel(columns // 64):
    strip = alloc(f32[K, 64])                   # stays in the L2 cache
    for n, k in blocks of 16 x 16: strip[...] = w[...], transposed in registers
    for i_0 in range(rows // 6): a tile of 6 x 64 sums over all of K
    for i_tail in ...:           the remainder, in tiles of 4 and of 1

Compared with packing everything first, nothing is written to memory and read back, and
no thread waits for another; but there must be enough strips to distribute, and columns
that fill no strip are computed afterwards. Packed operands are used as they are.
"""

from __future__ import annotations

from math import prod
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir.nodes import Const, Load
from tensorlang.schedules.blocks import Blocks, by_blocks, is_packed
from tensorlang.schedules.plan import Plan, Tile
from tensorlang.schedules.stages import Stage, column_dimension, extent_of, tile_axes

_MOST_BYTES: Final = 1 << 19  # of a strip: half of an L2 cache
_BLOCK_BYTES: Final = 1 << 18  # of a block of a larger strip
_STRIPS_A_THREAD: Final = 4
_WORTH_PACKING: Final = 24  # rows


def by_strips(plan: Plan, tile: Tile) -> None:
    """Schedule a whole contraction.

    Raises:
        ScheduleError: the sizes do not suit.
    """
    load, width = _operand(plan, plan.stage, tile), tile.vectors * tile.lanes
    depth = _depth(plan.stage, load, width) or 0
    by_blocks(plan, tile, Blocks("nkm", depth=depth))


def _operand(plan: Plan, stage: Stage, tile: Tile) -> Load:
    """The operand the columns index, if its strips can be used one by one."""
    found = tile_axes(stage)
    assert found is not None
    column, width = found[1], tile.vectors * tile.lanes
    loads = [n for n in stage.loads if column_dimension(stage, n) is not None]
    length = extent_of(column)
    depth = [extent_of(loop) for loop in stage.driven("reduction")]
    if len(loads) != 1 or length is None or None in depth:
        raise ScheduleError("the strips are of unknown size")
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
    if length % width and _stays(plan, load):
        raise ScheduleError("the strips are not whole, and all stay in a cache")
    _depth(stage, load, width)
    return load


def _stays(plan: Plan, load: Load) -> bool:
    """Whether a copy of a whole operand stays in the processor's last cache."""
    shape, target = load.buffer.shape, plan.s.target
    sizes = [int(n.value) for n in shape if isinstance(n, Const)]
    if target is None or len(sizes) < len(shape):
        return True
    held = max(target.l2_bytes, target.l3_bytes)
    return prod(sizes) * load.buffer.dtype.bytes <= held


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
