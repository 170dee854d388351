"""Recurrent networks on a CPU: strips of units to threads, their sums in registers.

for step in range(length):
    for s in parallel(strips):
        for b_0 in range(rows // tile):
            sums = alloc(f32[tile, gates, units], scope="register")
            for k in range(size): ...
        for b in range(rows):
            for u in vectorized(units): state[step + 1, b, s, u] = cell(sums[b, :, u])

So there is one barrier in a step, and a thread has its share of the weights in its
cache in all of them.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Final

from tensorlang.ir.contents import allocations, blocks
from tensorlang.schedules.cost.core import core_of
from tensorlang.schedules.generic import each_stage
from tensorlang.schedules.streaming import loop_named, nearest_option, whole_steps
from tensorlang.schedules.tiling import cut_at, extent, write_back, written
from tensorlang.scheduling import Knobs, Schedule, schedule

_ROWS: Final = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14)


@schedule("recurrent")
def recurrent(s: Schedule, knobs: Knobs) -> None:
    """Strips of units to threads; tiles of rows, and all gates, in registers."""
    each_stage(s, knobs)
    for products, cell in phases(s):
        _phase(s, knobs, products, cell)


def phases(s: Schedule) -> list[tuple[str, str]]:
    """The blocks of products in a step, each with that of the cell that follows.

    The cells alone depend on the steps before.
    """
    return [
        (products.name, cell.name)
        for products, cell in pairwise(blocks(s.function))
        if any(axis.kind == "ordered" for axis in cell.axes)
    ]


def _phase(s: Schedule, knobs: Knobs, products: str, cell: str) -> None:
    """Schedule products and the cell that reads them, strip by strip."""
    sums = next(b for b in allocations(s.function) if b.name == written(s, products))
    core = core_of(s.target, sums.dtype)
    strip, row, *inner = s.loops(products)[-5:]
    units = extent(s, inner[-1]) or 1
    vectors = (extent(s, inner[1]) or 1) * max(units // core.lanes, 1)
    rows = extent(s, row)
    most = max(n for n in _ROWS if n == 1 or core.holds(n, vectors))
    even = -(-rows // -(-rows // most)) if rows else most
    tall = knobs.choice(
        f"{products}_rows",
        _ROWS,
        default=nearest_option(even, _ROWS),
        why=f"{most} rows of {vectors} vectors fit {core.registers} registers",
    )
    sizes = [extent(s, loop) for loop in (strip, row, inner[0])]
    known = [size for size in sizes if size is not None]
    if 0 in known:  # nothing to do, and no parts of it
        return
    cycles = prod(known) * vectors / core.products
    for part, height in _by_rows(s, products, row, tall):
        _tile(s, part, core.lanes, height)
    row, unit = s.loops(cell)[-2:]
    outer, lane = s.split(unit, [None, units])
    s.reorder(outer, row, lane)
    s.vectorize(lane)
    s.merge(strip, outer)
    if len(known) < len(sizes) or core.worth_threads(cycles):
        s.parallel(strip)


def _by_rows(s: Schedule, block: str, row: str, tall: int) -> list[tuple[str, int]]:
    """The blocks of tiles of rows, each with the rows of a tile.

    What is left after whole tiles goes by tiles of a third of the height, and so on.
    """
    rows = extent(s, row)
    if tall == 1 or (rows is not None and (rows % tall == 0 or rows < tall)):
        return [(block, tall if rows is None else min(tall, rows))]
    whole, left = cut_at(s, block, row, whole_steps(s, loop_named(s, row).extent, tall))
    return [(whole, tall), *_by_rows(s, left, s.loops(left)[-4], max(tall // 3, 1))]


def _tile(s: Schedule, block: str, lanes: int, tall: int) -> None:
    """Keep the sums of a tile of rows in registers."""
    row, depth, gate, unit = s.loops(block)[-4:]
    outer, row = s.split(row, [None, tall])
    vector, lane = s.split(unit, [None, min(lanes, extent(s, unit) or lanes)])
    s.reorder(outer, depth, row, gate, vector, lane)
    write, _ = s.cache_write(block, written(s, block), "register", at=outer)
    for loop in (row, gate, vector):
        s.unroll(loop)
    s.vectorize(lane)
    write_back(s, write, outer, lanes)
