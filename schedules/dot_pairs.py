"""Contractions of bf16 by the processor's dot products of pairs.

An instruction adds two products to each f32 sum: `w` is packed so that the pairs of 16
columns are neighbours, and a pair of `x` goes to all lanes.

w: (n, k) lies as (n // 16, k // 2, n % 16, k % 2)
for j_0, i_0 in parallel(...):
    sums = alloc(f32[rows, 32], scope="register")
    for k_0 in range(K // 2):
        for i_1 in unrolled(rows), j_1 in unrolled(2): sums[i_1] += pair(x) . pairs(w)
"""

from __future__ import annotations

from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir.contents import free_vars
from tensorlang.ir.nodes import Cast, Expr, Load
from tensorlang.ir.visit import walk
from tensorlang.schedules.plan import Tile
from tensorlang.schedules.stages import Stage, extent_of, tile_axes
from tensorlang.schedules.tiling import attempt, cut_at, extent, is_part, shared
from tensorlang.scheduling import Schedule

LANES: Final = 16
_FEATURE: Final = "avx512_bf16"
_BY_ROWS: Final = "dpbf16_rows_16xf32"
_BY_COLUMNS: Final = "dpbf16_16xf32"
_PACK: Final = "copy_pairs_16x32xbf16"


def possible(s: Schedule, stage: Stage, tile: Tile) -> bool:
    """Whether the processor has the instruction, and the sizes are whole pairs."""
    found, folded = tile_axes(stage), stage.driven("reduction")
    if found is None or len(folded) != 1 or s.target is None:
        return False
    sizes = extent_of(found[1]), extent_of(folded[0])
    return (
        _FEATURE in s.target.features
        and tile.lanes == LANES
        and all(load.buffer.dtype.name == "bf16" for load in stage.loads)
        and len(stage.loads) == sum(isinstance(n, Cast) for n in walk(stage.block.body))
        and None not in sizes
        and (sizes[0] or 1) % LANES == 0
        and (sizes[1] or 1) % 2 == 0
    )


def pack(s: Schedule, stage: Stage) -> str:
    """Copy the columns' operand into pairs; returns the instruction that fits it."""
    found, folded = tile_axes(stage), stage.driven("reduction")
    assert found is not None
    column, k = stage.axis(found[1]), stage.axis(folded[0])
    load = next(n for n in stage.loads if _at(n, column) is not None)
    at, depth = _at(load, column), _at(load, k)
    if at is None or depth is None:
        raise ScheduleError("the columns' operand is not indexed by the reduction")
    copy, packed = s.cache_read(stage.name, load.buffer.name, "global")
    given = [f"d{n}" for n in range(load.buffer.ndim)]
    rest = [name for n, name in enumerate(given) if n not in (at, depth)]
    laid = (
        f"{given[at]} // {LANES}",
        *rest,
        f"{given[depth]} // 2",
        f"{given[at]} % {LANES}",
        f"{given[depth]} % 2",
    )
    s.transform_layout(packed, f"lambda {', '.join(given)}: ({', '.join(laid)})")
    if not (depth == at + 1 and attempt(s, _turn, s, copy)):
        shared(s, s.loops(copy)[:1])
    return _BY_ROWS if at < depth else _BY_COLUMNS


def _at(load: Load, var: Expr) -> int | None:
    """The only dimension of an operand that a variable indexes."""
    at = [n for n, index in enumerate(load.indices) if var in free_vars(index)]
    return at[0] if len(at) == 1 else None


def _turn(s: Schedule, copy: str) -> None:
    """The copy in blocks of 16 columns by 16 pairs, turned in registers."""
    around = s.loops(copy)
    column, depth = around[-2:]
    length = extent(s, depth) or 0
    if length % (2 * LANES) and length > 2 * LANES:
        s.reorder(depth, *(name for name in around if name != depth))
        cut_at(s, copy, depth, length // (2 * LANES) * 2 * LANES)
    column_0, column_1 = s.split(column, [None, LANES])
    depth_0, depth_1 = s.split(depth, [None, 2 * LANES])
    s.reorder(*around[:-2], column_0, depth_0, column_1, depth_1)
    shared(s, [*around[:-2], column_0])
    s.tensorize(column_1, _PACK)


def tile(  # noqa: PLR0917 - what a tile is made of
    s: Schedule,
    block: str,
    stage: Stage,
    names: tuple[str, str, str],
    how: Tile,
    instruction: str,
) -> str:
    """The tile's loops around one block; returns the block that writes back.

    Args:
        s: The schedule.
        block: The stage's, or a part of it.
        stage: The contraction.
        names: Of the loops over rows, columns and the reduction.
        how: The tile.
        instruction: What the block becomes.
    """
    around = s.loops(block)
    i, j, k = (next(n for n in around if is_part(n, name)) for name in names)
    outer = [n for n in around if n not in (i, j, k)]
    i_0, i_1 = s.split(i, [None, min(how.rows, extent(s, i) or how.rows)])
    vectors = min(how.vectors, (extent(s, j) or LANES) // LANES)
    j_0, j_1, j_2 = s.split(j, [None, vectors, LANES])
    k_0, k_1 = s.split(k, [None, 2])
    s.reorder(*outer, j_0, i_0, k_0, i_1, j_1, j_2, k_1)
    write, _ = s.cache_write(block, stage.output.name, "register", at=i_0)
    start = s.decompose_reduction(block, k_0)
    for loop in (i_1, j_1):
        s.unroll(loop)
    s.tensorize(block, instruction)
    for made in (start, write):
        _written_out(s, made, i_0)
    if how.parallel:
        shared(s, [*outer, j_0, i_0])
    return write


def _written_out(s: Schedule, block: str, at: str) -> None:
    """A tile's own loops: vectors, unrolled."""
    around = s.loops(block)
    *rows, last = around[around.index(at) + 1 :]
    if (extent(s, last) or 0) > LANES:
        vector, last = s.split(last, [None, LANES])
        rows.append(vector)
    for loop in rows:
        s.unroll(loop)
    s.vectorize(last)
