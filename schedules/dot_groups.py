"""bf16 contractions by the processor's dot products of pairs.

An instruction adds two products to each f32 sum: `w` is packed so that the pairs of 16
columns are contiguous, and a pair of `x` is broadcast to all lanes.

w: (n, k) is stored as (n // 16, k // 2, n % 16, k % 2)
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
from tensorlang.schedules.tiling import cut_at, extent, is_part, parallelize
from tensorlang.scheduling import Schedule

LANES: Final = 16
_FEATURE: Final = "avx512_bf16"
_BY_ROWS: Final = "dpbf16ps_bf16_rows"
_BY_COLUMNS: Final = "dpbf16ps_bf16_columns"
_PACK: Final = "copy_by_columns_16x32xbf16"


def possible(s: Schedule, stage: Stage, tile: Tile) -> bool:
    """Whether the processor has the instruction, and sizes are whole pairs."""
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
    """Pack the operand the columns index into pairs; returns the instruction to use."""
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
    if not (depth == at + 1 and s.attempt(_transpose, s, copy)):
        parallelize(s, s.loops(copy)[:1])
    return _BY_ROWS if at < depth else _BY_COLUMNS


def _at(load: Load, var: Expr) -> int | None:
    """The operand's dimension that a variable indexes, if it is exactly one."""
    at = [n for n, index in enumerate(load.indices) if var in free_vars(index)]
    return at[0] if len(at) == 1 else None


def _transpose(s: Schedule, copy: str) -> None:
    """Copy in blocks of 16 columns by 16 pairs, transposed in registers."""
    around = s.loops(copy)
    column, depth = around[-2:]
    length = extent(s, depth) or 0
    if length % (2 * LANES) and length > 2 * LANES:
        s.reorder(depth, *(name for name in around if name != depth))
        cut_at(s, copy, depth, length // (2 * LANES) * 2 * LANES)
    column_0, column_1 = s.split(column, [None, LANES])
    depth_0, depth_1 = s.split(depth, [None, 2 * LANES])
    s.reorder(*around[:-2], column_0, depth_0, column_1, depth_1)
    parallelize(s, [*around[:-2], column_0])
    s.tensorize(column_1, _PACK)


def tile(  # noqa: PLR0917 - the parts of a tile
    s: Schedule,
    block: str,
    stage: Stage,
    names: tuple[str, str, str],
    how: Tile,
    instruction: str,
) -> str:
    """Tile the loops around one block; returns the block that writes back.

    Args:
        s: The schedule.
        block: The stage's block or a part split off it.
        stage: The contraction.
        names: Loops over rows, columns and the reduction.
        how: The tile.
        instruction: The intrinsic to tensorize with.
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
        _unroll_write_back(s, made, i_0)
    if how.parallel:
        parallelize(s, [*outer, j_0, i_0])
    return write


def _unroll_write_back(s: Schedule, block: str, at: str) -> None:
    """Unroll and vectorize a tile's write-back."""
    around = s.loops(block)
    *rows, last = around[around.index(at) + 1 :]
    if (extent(s, last) or 0) > LANES:
        vector, last = s.split(last, [None, LANES])
        rows.append(vector)
    for loop in rows:
        s.unroll(loop)
    s.vectorize(last)
