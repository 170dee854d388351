"""Split-K: products of few rows and columns, their steps distributed over blocks.

    sums[i, j] += x[i, k] * w[j, k]

    for part in range(8):                          # a batch, to the tiling
        sums_rf[part, i, j] += x[i, k] * w[j, k]   # each eighth tile of steps
    sums[i, j] += sums_rf[part, i, j]              # in order of the parts

Neighbouring blocks take neighbouring tiles of steps, so they share what they read. The
number of parts never depends on a dynamic size, nor on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from tensorlang.schedules.generic import stage_named
from tensorlang.schedules.simt.grid import per_thread
from tensorlang.schedules.simt.matrices import Matrices, Sides
from tensorlang.schedules.tiling import fused
from tensorlang.scheduling import Schedule

PARTS: Final = (1, 2, 4, 8, 16, 32, 64)
_BUSY: Final = 264  # blocks: two for each multiprocessor of a large device
_LEAST: Final = 256  # steps of a part that are worth a partial result
_IMAGES: Final = 32  # assumed size of a dynamic batch
_THREADS: Final = 256
_UNROLLED: Final = 16


def parts_of(sides: Sides, sizes: tuple[int, int]) -> int:
    """The number of parts of the steps, for tiles of `sizes` rows and columns.

    As few as occupy a device; one if rows or columns are dynamic.
    """
    count, steps = sides.tiles(sizes), sides.extent("step")
    if count is None:
        return 1
    most = (sides.at_least * _IMAGES if steps is None else steps) // _LEAST
    wanted = -(-_BUSY // count)
    fitting = [part for part in PARTS if part <= max(min(2 * wanted - 1, most), 1)]
    return fitting[-1]


def split_k(
    s: Schedule, matrices: Matrices, parts: int, depth: int
) -> tuple[str, list[str]]:
    """Split the steps into a further batch dimension; each part has every n-th tile.

    Returns:
        The block of the partial sums, and the loops over tiles of its steps and over
        the steps of a tile. The block that combines them keeps its name.
    """
    loops = matrices.loops
    outer, part, inner = s.split(loops["step"], [None, parts, depth])
    block, _ = s.rfactor(matrices.block, part)
    batch = [part, *([loops["batch"]] if "batch" in loops else [])]
    s.reorder(*batch, loops["row"], loops["column"], outer, inner)
    loops["batch"] = fused(s, batch)
    return block, [outer, inner]


def combine(s: Schedule, matrices: Matrices) -> None:
    """Combine a result's partial sums in one thread, with what follows fused."""
    combine_parts(s, matrices.block, [matrices.writer])


def combine_parts(s: Schedule, block: str, writers: Sequence[str]) -> None:
    """Combine partial sums by the block of this name, with its writers fused."""
    stage = stage_named(s, block)
    assert stage is not None
    spatial = stage.names("spatial")
    (part,) = stage.names("reduction")
    parts = next(loop for loop in stage.loops if loop.var.name == part).extent
    s.cache_write(block, stage.output.name, "register", spatial[-1])
    for writer in writers:
        s.attempt(partial(s.inline, reverse=True), writer)
    per_thread(s, spatial, _THREADS)
    if int(getattr(parts, "value", _UNROLLED)) <= _UNROLLED:
        s.unroll(part)
