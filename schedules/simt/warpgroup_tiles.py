"""Tiles of warpgroups, chosen by the clocks that they take on a Hopper GPU.

A tile is what a block computes at once: 64 rows for each of its warpgroups, by columns.
Of products of known sizes it is the fastest: large tiles read less, small ones occupy
more multiprocessors, and so does splitting the steps into parts. Rows of unknown number
have two tiles, one of few rows and the largest one, which change over where that costs
least over all numbers of rows.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from math import prod
from typing import Final, TypeAlias

from tensorlang.frozen import frozen
from tensorlang.ir.dtypes import f32
from tensorlang.ir.nodes import For, If
from tensorlang.machine.gpus import GROUP_ROWS, LAUNCH, LINE, Gpu, gpu_of
from tensorlang.schedules.simt.fragments import Lanes
from tensorlang.schedules.simt.grid import GROUPS
from tensorlang.schedules.simt.split_steps import PARTS
from tensorlang.schedules.simt.tensor_cores import ends_long
from tensorlang.schedules.stages import Stage, extent_of, tile_axes, trips
from tensorlang.scheduling import Schedule
from tensorlang.scheduling.analysis.tree import find_block

# products of matrices, their rows and columns; None if unknown
Sizes: TypeAlias = tuple[int | None, int | None, int | None]
GROUPS_OF_BLOCK: Final = (1, 2)  # of warps
COLUMNS: Final = (64, 128, 256)
ROWS: Final = (64, 128, 256, 512, 1024, 2048, 4096, 8192)  # from which on are many
BYTES: Final = 2  # of an operand's element
DEPTH: Final = LINE // BYTES  # steps of k in a swizzled row
_USUAL_STEPS: Final = 8192  # if unknown, as the rows of a batch


@frozen
class Tile:
    """Knob values: the tile of a block, and the parts that steps are split into."""

    groups: int
    columns: int
    parts: int = 1
    depth: int = DEPTH

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return GROUP_ROWS * self.groups

    @property
    def lanes(self) -> Lanes:
        """The distribution of the sums over lanes: each warp has 16 rows."""
        return Lanes((self.rows, self.columns), (4 * self.groups, 1))


def fastest(s: Schedule, stage: Stage, sizes: Sizes) -> Tile:
    """The fastest tile of known sizes; else the largest, or that of few rows.

    Steps of unknown rows are not divided: their number must not change what is rounded.
    """
    found = tiles_of(s, stage, sizes)
    gpu = None if s.target is None else gpu_of(s.target)
    if None in sizes or gpu is None:
        return cases_of(s, stage)[1] if _is_few(s, stage) else found[0]
    steps = extent_of(stage.driven("reduction")[0]) or _USUAL_STEPS
    return min(found, key=partial(clocks_of, gpu, sizes, steps))


def tiles_of(s: Schedule, stage: Stage, sizes: Sizes) -> list[Tile]:
    """The tiles that sizes fill, the largest first.

    Of unknown rows or columns there are as many as the largest tile has. An expensive
    epilogue is written out for fewer columns.
    """
    _, rows, columns = sizes
    most = COLUMNS[-2] if ends_long(s, stage) else COLUMNS[-1]
    filled = -(-rows // GROUP_ROWS) if rows else GROUPS_OF_BLOCK[-1]
    return [
        Tile(groups, wide, parts)
        for wide in reversed(COLUMNS)
        for groups in reversed(GROUPS_OF_BLOCK)
        for parts in (PARTS if None not in sizes else PARTS[:1])
        if wide <= min(most, max(columns or most, COLUMNS[0])) and groups <= filled
    ]


def clocks_of(gpu: Gpu, sizes: Sizes, steps: int, tile: Tile) -> float:
    """Clocks of all tiles, a step of k: of the unit that is busiest.

    These are the tensor cores, shared memory, which copies fill and each warpgroup
    reads, and the L2 cache. Partial results pass that twice, for one more launch. How
    results are rounded depends on the parts, and these on no device's number of
    multiprocessors.
    """
    tiles = count_of(sizes, tile, gpu.processors)
    own = -(-tiles * tile.parts // gpu.processors) / tile.parts  # of the busiest one
    partial_bytes = 2 * f32.bytes * tile.parts * prod(size or 1 for size in sizes)
    combined = gpu.clock * LAUNCH + partial_bytes / gpu.cache if tile.parts > 1 else 0.0
    brought = tile.rows + tile.columns
    read = tile.groups * (GROUP_ROWS + tile.columns)
    busiest = max(
        own * tile.rows * tile.columns / gpu.group_products,
        own * BYTES * (brought + read) / LINE,
        tiles * BYTES * brought / gpu.cache,
    )
    return busiest + combined / steps


def squarest(tile: Tile, together: int) -> int:
    """Columns of tiles of which that many, computed together, read the least."""

    def read(columns: int) -> int:
        return columns * tile.columns + -(-together // columns) * tile.rows

    return min(GROUPS, key=read)


def processors_of(s: Schedule) -> int:
    """Multiprocessors of the target, by the data sheet if it is only compiled for."""
    assert s.target is not None
    gpu = gpu_of(s.target)
    return s.target.threads if s.target.index >= 0 or gpu is None else gpu.processors


def sizes_of(stage: Stage) -> Sizes:
    """The number of products of matrices, and their rows and columns."""
    row, column = tile_axes(stage) or (None, None)
    assert row is not None
    assert column is not None
    return trips(batches_of(stage)), extent_of(row), extent_of(column)


def count_of(sizes: Sizes, tile: Tile, unknown: int) -> int:
    """Tiles of all products; along unknown sizes, taken as more than `unknown`."""
    pairs = zip(sizes, (1, tile.rows, tile.columns), strict=True)
    return prod(-(-size // part) if size else unknown + 1 for size, part in pairs)


def cases_of(s: Schedule, stage: Stage) -> tuple[int, Tile]:
    """From how many rows on the largest tile is best, and the tile of fewer.

    These are the best for numbers of rows that are powers of two, each as important in
    its time relative to that of its fastest tile. 0 if other sizes are unknown.
    """
    batch, _, columns = sizes_of(stage)
    gpu = None if s.target is None else gpu_of(s.target)
    most, *tiles = tiles_of(s, stage, (batch, None, columns))
    if columns is None or batch is None or gpu is None:
        return 0, most
    steps = extent_of(stage.driven("reduction")[0]) or _USUAL_STEPS

    def slowed(at: int, tile: Tile) -> float:
        times = 0.0
        for count in ROWS:
            sizes = batch, count, columns
            clocks = partial(clocks_of, gpu, sizes, steps)
            used = tile if count < at else most
            times += clocks(used) / min(map(clocks, (most, *tiles)))
        return times

    every = ((at, tile) for at in ROWS for tile in tiles)
    at, tile = min(every, key=lambda case: slowed(*case), default=(0, most))
    return (at, tile) if at > ROWS[0] else (0, most)


def _is_few(s: Schedule, stage: Stage) -> bool:
    """Whether a stage is in the case of few rows."""
    path = find_block(s.function, stage.name)
    pairs = pairwise(path)
    return any(isinstance(node, If) and node.orelse is below for node, below in pairs)


def batches_of(stage: Stage) -> tuple[For, ...]:
    """The loops around products of matrices."""
    own = tile_axes(stage) or ()
    return tuple(loop for loop in stage.driven("spatial") if loop not in own)
