"""Contractions by the processor's matrix products: tiles of 16 by 16 sums.

`w` is packed in groups, as for dot products; a tile of it, and of as many groups as a
register has rows, is contiguous. Four tiles of sums share two tiles of each operand:

    for k_0 in range(K // depth):              # a strip of `w` stays in a cache
        for j_0, i_0 in parallel(...):
            sums = alloc(f32[2, 2, 16, 16], scope="register")
            for k_1 in range(depth // 32):
                for i_1 in unrolled(2), j_1 in unrolled(2): sums += tile(x) . tile(w)
            y[...] += sums

Remainders of the rows get lower tiles; columns and reduction are padded to whole ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.instructions import MatrixProduct, matrix_product
from tensorlang.ir.contents import allocations
from tensorlang.schedules import tiling
from tensorlang.schedules.contraction.choice import Choice
from tensorlang.schedules.contraction.dot_groups import Products, pack, products_by
from tensorlang.schedules.contraction.matrix_model import DEPTHS, SIDE, tiles_depth
from tensorlang.schedules.contraction.model import Product
from tensorlang.schedules.plan import Plan
from tensorlang.schedules.stages import Stage, stages
from tensorlang.schedules.streaming import loop_named
from tensorlang.scheduling import Schedule
from tensorlang.scheduling.intrinsics.matrices import HEIGHTS, matrix_name

_OPEN: Final = (32, 16, 4, 1)  # rows of the blocks of an open number of rows
_KNOWN: Final = (SIDE * HEIGHTS[0], *HEIGHTS)


def matrix(s: Schedule, stage: Stage) -> Products[MatrixProduct] | None:
    """The stage as matrix products of one of the processor's instructions, if any."""
    found = products_by(s, stage, matrix_product)
    if found is None or found.flipped or found.is_apart or found.sizes[2] is None:
        return None
    return found


def chosen(plan: Plan, product: Product | None, best: Choice) -> int | None:
    """The depth of a block, if the knobs choose tiles; else None."""
    s, found = plan.s, matrix(plan.s, plan.stage)
    if found is None or product is None or s.target is None:
        return None
    tiles, depth = tiles_depth(plan.core, s.target, found.row, product, best)
    kinds = ("tiles", "vectors")
    kind = plan.knobs.choice("products", kinds, default=kinds[0 if tiles else 1])
    if kind != "tiles":
        return None
    return plan.knobs.choice("tile_depth", DEPTHS, default=depth)


def by_tiles(plan: Plan, depth: int) -> None:
    """Schedule a contraction.

    Args:
        plan: The stage.
        depth: Reduction steps of a block; 0 for all.

    Raises:
        ScheduleError: no instruction computes it, or the sizes do not suit.
    """
    s, found, back = plan.s, matrix(plan.s, plan.stage), ""
    if found is not None and _lacks_columns(s, found):
        back, _ = s.cache_write(plan.stage.name, plan.stage.output.name, "global")
        stage = next(x for x in stages(s.function) if x.name == plan.stage.name)
        found = matrix(s, stage)
    if found is None:
        raise ScheduleError("no matrix product instruction computes this")
    layout = "strips" if found.is_packed else pack(s, found)
    name, (i, j, k), every = found.stage.name, found.names, found.row.depth
    steps = (tiling.extent(s, k) or 0) // every
    folds: tuple[str, ...] = (k,)
    if 0 < depth < steps * every:
        folds = s.split(k, [None, every * tiling.nearest(steps, depth // every)])
    for tall, rows in _cut_rows(s, name, i):
        for part in tiling.cut(s, tall, j, SIDE * found.row.lanes):
            _tile(plan, part, found, (i, j, *folds), rows, layout)
    if back and not s.attempt(partial(s.inline, reverse=True), back):
        *around, column = s.loops(back)
        tiling.in_lanes(s, loop_named(s, column), plan.width)
        if plan.threads:
            tiling.parallelize(s, around)


def _lacks_columns(s: Schedule, found: Products[MatrixProduct]) -> bool:
    """Whether columns are padded of a result that keeps its shape."""
    kept = found.stage.output not in set(allocations(s.function))
    return kept and found.sizes[1] % found.row.lanes > 0


def _cut_rows(s: Schedule, block: str, row: str) -> list[tuple[str, int]]:
    """Blocks of whole tiles and of the remainder, with the rows of each."""
    found: list[tuple[str, int]] = []
    for size in _KNOWN if tiling.extent(s, row) is not None else _OPEN:
        loop = next(name for name in s.loops(block) if tiling.is_part(name, row))
        length = tiling.extent(s, loop)
        if size == 1 or (length is not None and length % size == 0):
            return [*found, (block, size)]
        if length is None:
            part, block = tiling.cut_unknown(s, block, row, size)
            found.append((part, size))
        elif length > size:
            part, block = tiling.cut(s, block, row, size)
            found.append((part, size))
    return found


def _tile(  # noqa: PLR0917 - the parts of a tile
    plan: Plan,
    block: str,
    found: Products[MatrixProduct],
    names: Sequence[str],
    rows: int,
    layout: str,
) -> None:
    """Tile one part of the results."""
    s, row = plan.s, found.row
    around = s.loops(block)
    i, j, *folds = (n for name in names for n in around if tiling.is_part(n, name))
    taps = [n for of in found.around for n in around if tiling.is_part(n, of)]
    outer = [n for n in around if n not in (i, j, *taps, *folds)]
    height = min(rows, row.rows)
    i_0, i_1, i_2 = s.split(i, [None, rows // height, height])
    wide = min(SIDE, (tiling.extent(s, j) or row.lanes) // row.lanes)
    j_0, j_1, j_2 = s.split(j, [None, wide, row.lanes])
    k_0, k_1, k_2 = s.split(folds[-1], [None, row.steps, row.group])
    steps = (*taps, k_0)
    s.reorder(*outer, *folds[:-1], j_0, i_0, *steps, i_1, j_1, i_2, j_2, k_1, k_2)
    output = found.stage.output
    write, sums = s.cache_write(block, output.name, "register", at=i_0, accumulate=True)
    copy, _ = s.cache_read(write, sums, "register", at=i_0)
    _by_tiles(s, found, sums, height)
    start = s.decompose_reduction(block, steps[0])
    for loop in (i_1, j_1):
        s.unroll(loop)
    s.tensorize(block, matrix_name(row, height, layout))
    kind = f"{height}x{row.lanes}x{row.sums}"
    first = s.loops(start)
    for loop in first[-4:-2]:
        s.unroll(loop)
    s.tensorize(start, f"zero_{kind}")
    _copy(s, copy, i_0, (height, row.lanes), f"copy_{kind}")
    *_, last = s.loops(write)
    s.vectorize(s.split(last, [None, row.lanes])[1])
    if plan.threads:
        tiling.parallelize(s, [*outer, j_0, i_0] if not folds[:-1] else [j_0, i_0])


def _by_tiles(
    s: Schedule, found: Products[MatrixProduct], sums: str, height: int
) -> None:
    """Make each tile of sums contiguous."""
    stage = found.stage
    *others, row, column = (f"d{n}" for n in range(stage.output.ndim))
    if stage.update.indices[-2] != stage.axis(found.loops[0]):
        raise ScheduleError("rows and columns are not the result's last dimensions")
    lanes = found.row.lanes
    laid = [*others, f"{row} // {height}", f"{column} // {lanes}"]
    laid += [f"{row} % {height}", f"{column} % {lanes}"]
    names = ", ".join([*others, row, column])
    s.transform_layout(sums, f"lambda {names}: ({', '.join(laid)})")


def _copy(s: Schedule, block: str, at: str, tile: tuple[int, int], name: str) -> None:
    """Copy the sums of a block, below a loop, tile by tile."""
    around = s.loops(block)
    inside = around[around.index(at) + 1 :][-2:]  # a single row has no loop
    pairs = [
        s.split(loop, [None, size])
        for loop, size in zip(inside, tile[-len(inside) :], strict=True)
    ]
    outer, inner = zip(*pairs, strict=True)
    s.reorder(*outer, *inner)
    for loop in outer:
        s.unroll(loop)
    s.tensorize(block, name)
