"""Contractions on a CPU: register tiles of rows by vectors, operands packed if needed.

for j_0, i_0 in parallel(...):
    acc = alloc(f32[rows, vectors * lanes], scope="register")
    for k in range(K):
        for i_1 in unrolled(rows):
            for j_1 in unrolled(vectors):
                for j_2 in vectorized(lanes): acc[...] += a[i, k] * b[k, j]
    y[...] = acc

Remainders of a dimension are split off and get smaller tiles of their own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.schedules import tiling
from tensorlang.schedules.contraction import dot_groups, dots, matrix_tiles, space
from tensorlang.schedules.contraction.blocks import by_blocks
from tensorlang.schedules.contraction.choice import (
    USUAL,
    choice,
    compared,
    far,
    predicted,
    product_of,
)
from tensorlang.schedules.contraction.packing import in_rows, pack_whole
from tensorlang.schedules.plan import Plan
from tensorlang.schedules.stages import Stage, extent_of, tile_axes
from tensorlang.scheduling import Schedule


@frozen
class _Axes:
    """Loops of a contraction by role."""

    row: str
    column: str
    folded: tuple[str, ...]


def tiles(plan: Plan) -> None:
    """Register tiles over all rows and columns, smaller ones for remainders."""
    s, stage = plan.s, plan.stage
    found = tile_axes(stage)
    if found is None:
        raise ScheduleError(f"block {stage.name!r} is not a contraction")
    row, column = found
    product = product_of(stage) or USUAL
    dotted = dots.suits(stage)
    best = choice(plan.core, product, dots=dotted)
    default = dot_groups.fastest_tile(plan) or (best.rows, best.vectors)
    tile = space.Tile(
        plan.knobs.choice("rows", space.ROWS, default=default[0]),
        plan.knobs.choice("vectors", space.VECTORS, default=default[1]),
        plan.width,
        plan.threads,
    )
    depth = matrix_tiles.chosen(plan, product_of(stage), best)
    if depth is not None and s.attempt(matrix_tiles.by_tiles, plan, depth):
        return
    if dot_groups.products(s, stage) and s.attempt(dot_groups.by_groups, plan, tile):
        return
    if extent_of(column) == 1 or (extent_of(row) == 1 and not in_rows(stage)):
        if not far(plan.core, product):
            raise ScheduleError("a vector times rows: partial sums in lanes are faster")
        dots.by_dots(plan, best)
        return
    # each contraction of a function after the first has blocks of its own
    prefix = f"{stage.name}_" if plan.knobs.costs else ""
    known = plan.core, product
    plan.knobs.costs.append(partial(predicted, *known, best, prefix))
    plan.knobs.compared.append(partial(compared, *known, prefix, dots=dotted))
    folded = tuple(loop.var.name for loop in stage.driven("reduction"))
    axes = _Axes(row.var.name, column.var.name, folded)
    if dots.chosen(plan, best) and s.attempt(dots.by_dots, plan, best):
        return
    if s.attempt(in_blocks, plan, tile, best.blocks, prefix):
        return
    pack_whole(s, stage, tile, rows=False)
    for tall, rows in tiling.cut_rows(
        s, stage.name, axes.row, (tile.rows, *space.SMALL)
    ):
        for part, wide in _cut_columns(s, tall, axes.column, tile):
            _tile(s, part, stage, axes, replace(wide, rows=rows))


def in_blocks(
    plan: Plan, tile: space.Tile, best: space.Blocks, prefix: str = ""
) -> None:
    """Blocks by the knobs whose names begin with a prefix."""
    knobs = plan.knobs
    how = space.Blocks(
        knobs.choice(f"{prefix}blocks", space.ORDERS, default=best.order),
        knobs.choice(f"{prefix}block_strips", space.STRIPS, default=best.strips),
        knobs.choice(f"{prefix}block_tiles", space.TILES, default=best.tiles),
        knobs.choice(f"{prefix}block_depth", space.DEPTHS, default=best.depth),
        knobs.choice(f"{prefix}packing", space.PACKING, default=best.packing),
        knobs.flag(f"{prefix}rows_packed", default=best.rows_packed),
        knobs.flag(f"{prefix}strips_first", default=best.strips_first),
    )
    by_blocks(plan, tile, how)


def _cut_columns(
    s: Schedule, block: str, column: str, tile: space.Tile
) -> list[tuple[str, space.Tile]]:
    """The blocks of whole tiles, of whole vectors, and of what is narrower than one.

    Of an unknown number of columns, the remainder is made of shorter vectors, so that
    no reduction loop contains a condition.
    """
    loop = next(name for name in s.loops(block) if tiling.is_part(name, column))
    if tiling.extent(s, loop) is not None:
        parts = tiling.cut(s, block, column, tile.vectors * tile.lanes)
        narrow = tiling.cut(s, parts[-1], column, tile.lanes)
        return [(part, tile) for part in (*parts[:-1], *narrow)]
    vector = replace(tile, vectors=1)
    smaller = (replace(vector, lanes=n) for n in space.SMALL if n < tile.lanes)
    found = []
    for each in dict.fromkeys((tile, vector, *smaller)):
        part = block
        if each.lanes > 1:
            part, block = tiling.cut_unknown(
                s, block, column, each.vectors * each.lanes
            )
        found.append((part, each))
    return found


def _tile(s: Schedule, block: str, stage: Stage, axes: _Axes, tile: space.Tile) -> None:
    """Tile the loops around one block: the stage's own or a part split off it."""
    around = s.loops(block)
    i = next(name for name in around if tiling.is_part(name, axes.row))
    j = next(name for name in around if tiling.is_part(name, axes.column))
    inner = [n for n in around if any(tiling.is_part(n, name) for name in axes.folded)]
    outer = [n for n in around if n not in (i, j, *inner)]
    rows = min(tile.rows, tiling.extent(s, i) or tile.rows)
    columns = tiling.extent(s, j) or tile.vectors * tile.lanes
    lanes = min(tile.lanes, columns)
    i_0, i_1 = s.split(i, [None, rows])
    j_0, j_1, j_2 = s.split(j, [None, min(tile.vectors, columns // lanes), lanes])
    s.reorder(*outer, j_0, i_0, *inner, i_1, j_1, j_2)
    write, _ = s.cache_write(
        block, stage.output.name, "register", at=i_0, accumulate=True
    )
    for loop in (i_1, j_1):
        s.unroll(loop)
    s.vectorize(j_2)
    tiling.write_back(s, write, i_0, lanes)
    if tile.parallel:
        tiling.parallelize(s, [*outer, j_0, i_0])
