"""Contractions with lanes along the reduction: both operands are read as they are.

for j_0, i_0 in parallel(...):
    sums = alloc(f32[rows, columns, lanes], scope="register")
    for k_0 in range(K // lanes):
        for i_1 in unrolled(rows), j_1 in unrolled(columns):
            for k_1 in vectorized(lanes): sums[...] += x[i, k] * w[j, k]
    y[i, j] = the sum of the lanes, and of what fills no vector

Where few rows read an operand that is contiguous along the reduction, packing it costs
more than adding up lanes.
"""

from __future__ import annotations

from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.schedules.plan import Plan
from tensorlang.schedules.stages import Stage, extent_of, tile_axes
from tensorlang.schedules.tiling import (
    cut,
    cut_at,
    cut_unknown,
    extent,
    is_part,
    parallelize,
)
from tensorlang.scheduling import Schedule

_SIDES: Final = (1, 2, 3, 4, 5, 6, 8)
_OPEN_ROWS: Final = (1, 2, 4, 8)  # halved for what is left of an unknown number
_MOST_COLUMNS: Final = 5  # beside four rows, in three quarters of 32 registers
_MOST_ROWS: Final = 6  # beside four columns


def chosen(plan: Plan) -> bool:
    """Whether the knobs choose dot products, where the operands' layout allows them."""
    if not _suits(plan.stage):
        return False
    along = "depth" if _worthwhile(plan) else "columns"
    return plan.knobs.choice("lanes_along", ("columns", "depth"), along) == "depth"


def _suits(stage: Stage) -> bool:
    """Whether both operands are contiguous along the only reduction."""
    folded = stage.driven("reduction")
    along = [load.indices[-1] for load in stage.loads]
    return len(folded) == 1 and along == [stage.axis(folded[0])] * 2


def _worthwhile(plan: Plan) -> bool:
    """Whether lanes along the reduction cost less than lanes along the columns.

    A sum over lanes takes a shuffle and an addition per halving. Few rows are to pay
    less for that than for transposing the columns' operand, a shuffle per vector and
    halving, besides loads and stores; few columns less than for lanes that are idle.
    Columns that several tiles of rows read should stay in the first cache.
    """
    stage, target, found = plan.stage, plan.s.target, tile_axes(plan.stage)
    assert found is not None
    rows, columns, steps = map(extent_of, (*found, *stage.driven("reduction")))
    if columns is None or steps is None or target is None:
        return False
    halvings = plan.width.bit_length() - 1
    if columns < plan.width:
        return columns * (steps // plan.width + 2 * halvings) <= steps
    tall, wide = _sides(plan, rows, columns)
    block = wide * steps * stage.loads[0].buffer.dtype.bytes
    return (
        rows is not None
        and (rows <= tall or block <= target.l1_bytes)
        and rows * 2 * halvings * plan.width <= steps * (halvings + 2)
    )


def by_dots(plan: Plan) -> None:
    """Schedule a contraction in tiles of dot products.

    Raises:
        ScheduleError: the sizes do not suit.
    """
    s, stage = plan.s, plan.stage
    found = tile_axes(stage)
    if found is None or not _suits(stage):
        raise ScheduleError("the operands are not contiguous along the reduction")
    steps = extent_of(stage.driven("reduction")[0])
    if steps is None or steps < plan.width:
        raise ScheduleError(
            "the reduction has an unknown length, or less than a vector"
        )
    row, column = (loop.var.name for loop in found)
    usual = _sides(plan, *map(extent_of, found))
    rows = plan.knobs.choice("dot_rows", _SIDES, default=usual[0])
    columns = plan.knobs.choice("dot_columns", _SIDES, default=usual[1])
    for narrow in cut(s, stage.name, column, columns):
        for part, tall in _cut_rows(s, narrow, row, rows):
            _tile(plan, part, (row, column), (tall, columns))


def _sides(plan: Plan, rows: int | None, columns: int | None) -> tuple[int, int]:
    """Rows and columns of a tile whose sums fill three quarters of the registers."""
    most = (plan.s.target.vector_registers if plan.s.target else 16) * 3 // 4
    if rows is None or (columns is not None and columns < min(rows, plan.width)):
        wide = _even(columns or most, _MOST_COLUMNS)
        return max(n for n in _OPEN_ROWS if n * wide <= max(most, wide)), wide
    tall = _even(rows, _MOST_ROWS)
    return tall, max(n for n in _SIDES if n * tall <= max(most, tall))


def _even(length: int, most: int) -> int:
    """The size of the parts of a length: as few as possible, of about the same size."""
    return -(-length // -(-length // most))


def _cut_rows(s: Schedule, block: str, row: str, rows: int) -> list[tuple[str, int]]:
    """Blocks of whole tiles and of what is left, with the rows of a tile in each."""
    if extent(s, next(n for n in s.loops(block) if is_part(n, row))) is not None:
        return [(part, rows) for part in cut(s, block, row, rows)]
    found = []
    while rows > 1:
        part, block = cut_unknown(s, block, row, rows)
        found.append((part, rows))
        rows //= 2
    return [*found, (block, 1)]


def _tile(
    plan: Plan, block: str, names: tuple[str, str], size: tuple[int, int]
) -> None:
    """Tile one part of the results."""
    s, stage = plan.s, plan.stage
    depth = stage.driven("reduction")[0].var.name
    around = s.loops(block)
    i, j, k = (next(n for n in around if is_part(n, name)) for name in (*names, depth))
    outer = [n for n in around if n not in (i, j, k)]
    i_0, i_1 = s.split(i, [None, min(size[0], extent(s, i) or size[0])])
    j_0, j_1 = s.split(j, [None, min(size[1], extent(s, j) or size[1])])
    s.reorder(*outer, j_0, i_0, k, i_1, j_1)
    write, _ = s.cache_write(
        block, stage.output.name, "register", at=i_0, accumulate=True
    )
    steps = extent(s, k) or 0
    whole, rest = steps // plan.width * plan.width, ""
    if whole < steps:
        _, rest = cut_at(s, block, k, whole)
    _, lane = s.split(k, [None, plan.width])
    part, _ = s.rfactor(block, lane, axis=len(stage.output.shape))
    *_, k_0, lane, i_1, j_1 = s.loops(part)
    s.reorder(k_0, i_1, j_1, lane)
    for sums in filter(None, (part, block, rest)):
        *_, i_1, j_1, lane = s.loops(sums)
        if sums == rest:
            s.reorder(j_1, lane, i_1)
            i_1, j_1, lane = j_1, lane, i_1
        s.unroll(i_1)
        s.unroll(j_1)
        s.vectorize(lane)
    inside = s.loops(write)[s.loops(write).index(i_0) + 1 :]
    for loop in inside[:-1]:
        s.unroll(loop)
    if inside:
        s.vectorize(inside[-1])
    if plan.threads:
        parallelize(s, [*outer, j_0, i_0])
