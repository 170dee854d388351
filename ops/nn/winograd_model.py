"""Predicted cycles of Winograd's convolutions, of one image and one thread.

Around the products at each point of the tiles, vectors are moved, transposed and
transformed. One such operation ends per cycle, as most load what was just stored.
"""

from __future__ import annotations

from functools import cache
from math import hypot, log2
from typing import TYPE_CHECKING, Final

from tensorlang import lazy
from tensorlang.ir.dtypes import f32
from tensorlang.ops.nn.winograd_blocks import LANES, STRIP, Blocks
from tensorlang.ops.nn.winograd_matrices import WINDOW, Matrix
from tensorlang.ops.nn.winograd_products import transformed

if TYPE_CHECKING:
    from tensorlang.schedules.cost.core import Core
    from tensorlang.targets import Target

with lazy.modules(__name__):
    from tensorlang.ir import nodes, visit
    from tensorlang.schedules.cost import core as cores
    from tensorlang.schedules.cost import tiles

_COPIES: Final = 2  # of each pixel: to a block's lines or from them, and transposed
_TRAVELS: Final = 2  # of written weights through a cache: stored, and loaded again


def cycles(cut: Blocks, target: Target, *, constant: bool) -> float:
    """Predicted cycles for one image.

    Args:
        cut: The blocking of the image.
        target: Where it runs.
        constant: Whether the windows are transformed ahead.
    """
    core = cores.core_of(target, f32)
    lanes = min(core.lanes, LANES)
    groups, strips = -(-cut.inputs // LANES), -(-cut.outputs // STRIP)
    depth, points = groups * LANES, cut.transforms.points**2
    panel = depth * STRIP * f32.bytes
    every = strips * points * panel
    one, _ = tiles.tiled(core, cut.tiles, STRIP // lanes, depth)
    products = cut.count * strips * points * hypot(one, _read(core, panel, every))
    around = groups * LANES * _transform(core, cut.transforms.image, cut)
    around += strips * STRIP * _transform(core, cut.transforms.result, cut)
    cost = products + cut.count * cut.tiles * around / lanes
    if constant:
        return cost
    pixels = WINDOW**2
    window = _operations(cut.transforms.weight) + points + pixels * _moved(core)
    windows = strips * STRIP * depth * window / lanes
    return cost + windows + _TRAVELS * _read(core, every, every)


def _read(core: Core, size: float, whole: float) -> float:
    """Cycles to read so many bytes of a whole from the cache that holds it."""
    rate = 0.0
    for level in core.levels:
        if whole <= level.capacity:
            break
        rate = level.rate
    return size / rate if rate else 0.0


def _transform(core: Core, matrix: Matrix, cut: Blocks) -> float:
    """Operations per vector of a tile, whose points are stored and loaded once."""
    points, pixels = cut.transforms.points**2, cut.transforms.outputs**2
    return _operations(matrix) + 2 * points + pixels * _moved(core)


def _moved(core: Core) -> float:
    """Operations to copy a vector, each copy a load and a store, and transpose it."""
    return 2 * _COPIES + log2(min(core.lanes, LANES))


@cache
def _operations(matrix: Matrix) -> int:
    """Operations of `M grid M^T`, terms that are shared counted once."""
    side = range(len(matrix[0]))
    grid = [[nodes.Var(f"v{y}{x}", f32) for x in side] for y in side]
    stores = transformed(matrix, lambda y, x: grid[y][x], lambda _: ())
    terms = {id(node): node for _, value in stores for node in visit.walk(value)}
    return sum(isinstance(term, (nodes.Binary, nodes.Call)) for term in terms.values())
