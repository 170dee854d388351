"""Contractions by the processor's dot products of adjacent factors.

An instruction adds a group of products to each sum: of two bf16, or of four bytes. `w`
is packed so that the groups of a vector of columns are contiguous, and a group of `x`
is broadcast to all lanes:

w: (n, k) is stored as (n // 16, k // 4, n % 16, k % 4)
for j_0, i_0 in parallel(...):
    sums = alloc(i32[rows, 64], scope="register")
    for k_0 in range(K // 4):
        for i_1 in unrolled(rows), j_1 in unrolled(4): sums[i_1] += group(x) . groups(w)

For few rows, packing costs more than it saves. Both operands are then read as they are,
with lanes along the reduction, and the lanes are added up at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from math import ceil, prod
from typing import Final, Generic, TypeVar

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.instructions import DotProduct, MatrixProduct, dot_product
from tensorlang.ir.contents import allocations
from tensorlang.ir.nodes import Binary, Cast, Const, Expr, For, Load, Reduce, as_expr
from tensorlang.ir.visit import walk
from tensorlang.schedules import tiling
from tensorlang.schedules.contraction.space import ROWS, SIDES, SMALL, Tile
from tensorlang.schedules.cost.tiles import tiled
from tensorlang.schedules.plan import Plan
from tensorlang.schedules.stages import (
    Stage,
    extent_of,
    is_cheap,
    stages,
    tile_axes,
    variables,
)
from tensorlang.scheduling import Schedule
from tensorlang.scheduling.intrinsics.dots import FLIPPED, dot_name

Row = TypeVar("Row", bound=DotProduct | MatrixProduct)
_SIGN: Final = 128  # the sign bit of a byte


@frozen
class Products(Generic[Row]):
    """A contraction that an instruction computes."""

    stage: Stage
    row: Row  # instruction
    x: Load  # load of the operand that the rows index
    w: Load  # load of the operand that the columns index
    # whether 128 is added to it, which makes signed bytes unsigned
    flipped: bool = False

    @property
    def is_packed(self) -> bool:
        """Whether the columns' operand is interleaved in groups already."""
        _, column, k = map(self.stage.axis, self.loops)
        lanes, group = as_expr(self.row.lanes), as_expr(self.row.group)
        place = column % lanes * group + k % group
        return self.w.indices == (column // lanes, k // group, place)

    @property
    def sizes(self) -> tuple[int | None, int, int]:
        """The rows, if known, the columns, and the length of the reduction."""
        rows, columns, steps = map(extent_of, self.loops)
        return rows, columns or 0, steps or 0

    @property
    def loops(self) -> tuple[For, For, For]:
        """The loops over rows, columns, and the reduction along `x`."""
        found, depth = tile_axes(self.stage), _depth(self.stage, self.x)
        assert found is not None
        assert depth is not None
        return (*found, depth)

    @property
    def around(self) -> tuple[str, ...]:
        """The names of the other reductions: over the elements of windows."""
        return tuple(n for n in self.stage.names("reduction") if n != self.names[2])

    @property
    def names(self) -> tuple[str, str, str]:
        """The names of these loops."""
        i, j, k = (loop.var.name for loop in self.loops)
        return i, j, k


def products(s: Schedule, stage: Stage) -> Products[DotProduct] | None:
    """The stage as dot products of one of the processor's instructions, if it is that.

    See `products_by`.
    """
    return products_by(s, stage, dot_product)


def products_by(
    s: Schedule,
    stage: Stage,
    instruction: Callable[[Collection[str], tuple[str, str]], Row | None],
) -> Products[Row] | None:
    """The stage as products by one of the processor's instructions, if it is that.

    It multiplies two loads, converted to the type of the sums, first that of the rows;
    sizes other than the number of rows are known. Of several reductions, one is along
    the last dimension of the rows' operand.
    """
    found, folded, update = tile_axes(stage), stage.driven("reduction"), stage.update
    if s.target is None or found is None or not folded:
        return None
    match update:
        case Reduce(values=(Binary("mul", Cast(_, Load() as x), Cast(_, factor)),)):
            row = instruction(s.target.features, (x.dtype.name, factor.dtype.name))
        case _:
            return None
    match factor:
        case Load() as w:
            pass
        case Binary("xor", Cast(_, Load() as w), Const(bit)) if bit == _SIGN:
            pass
        case _:
            return None
    column, sizes = stage.axis(found[1]), map(extent_of, (found[1], *folded))
    if row is None or row.sums != stage.output.dtype.name or None in sizes:
        return None
    if column in variables(x) or column not in variables(w):
        return None
    if _depth(stage, x) is None:
        return None
    return Products(stage, row, x, w, flipped=factor != w)


def _depth(stage: Stage, x: Load) -> For | None:
    """The only reduction, or of several that along the last dimension of `x`."""
    folded, along = stage.driven("reduction"), x.indices[-1]
    if len(folded) == 1:
        return folded[0]
    return next((loop for loop in folded if stage.axis(loop) == along), None)


def _at(load: Load, axis: Expr) -> int | None:
    """The operand's dimension that an axis indexes, alone, if it is exactly one."""
    at = [n for n, index in enumerate(load.indices) if index == axis]
    return at[0] if len(at) == 1 else None


def made_factors(s: Schedule) -> set[str]:
    """The stages that make operands of dot products: they may pack or pad them."""
    made = {stage.output: stage.name for stage in stages(s.function)}
    found = filter(None, (products(s, stage) for stage in stages(s.function)))
    used = {load.buffer for each in found for load in (each.x, each.w)}
    return {made[buffer] for buffer in used if buffer in made}


def fastest_tile(plan: Plan) -> tuple[int, int] | None:
    """The rows and vectors of the fastest tile, of a known number of rows."""
    found = products(plan.s, plan.stage)
    if found is None:
        return None
    rows, columns, _ = found.sizes
    if not rows:
        return None
    depths = [extent_of(loop) or 1 for loop in found.stage.driven("reduction")]
    steps = ceil(prod(depths) / found.row.group)
    few = plan.core.addresses  # rows in several lines have an address each
    heights = [n for n in ROWS if n <= few or _in_line(found, n)]
    return tiled(plan.core, rows, ceil(columns / found.row.lanes), steps, heights)[1]


def _in_line(found: Products[DotProduct], rows: int) -> bool:
    """Whether so many rows, from a multiple of them on, lie in one line of images."""
    lines = (
        int(n.b.value)
        for index in found.x.indices
        for n in walk(index)
        if isinstance(n, Binary) and n.op == "floormod" and isinstance(n.b, Const)
    )
    return all(line % rows == 0 for line in lines)


def by_groups(plan: Plan, tile: Tile) -> None:
    """Schedule a contraction.

    Raises:
        ScheduleError: no instruction computes it, or the sizes do not suit.
    """
    found = products(plan.s, plan.stage)
    if found is None or found.row.lanes != tile.lanes:
        raise ScheduleError("no dot product instruction computes this")
    along = _along(found)
    if along is not None:
        default = "depth" if along else "columns"
        choice = plan.knobs.choice("lanes_along", ("columns", "depth"), default=default)
        if choice == "depth" and plan.s.attempt(_by_lanes, plan, found):
            return
    _by_columns(plan.s, found, tile)


def _along(found: Products[DotProduct]) -> bool | None:
    """Whether lanes along the reduction are faster; None if they are not possible.

    Adding up the lanes takes a shuffle and an addition per halving and sum; packing,
    the same per vector of weights, besides a load and a store.
    """
    rows, _, steps = found.sizes
    k, wide = found.stage.axis(found.loops[2]), found.row.lanes * found.row.group
    if (
        rows is None
        or found.around
        or steps < wide
        or {found.x.indices[-1], found.w.indices[-1]} != {k}
    ):
        return None
    halvings = found.row.lanes.bit_length() - 1
    return rows * 2 * halvings * wide <= steps * (halvings + 2)


# ------------------------------------------------------------------- lanes of columns


def _by_columns(s: Schedule, found: Products[DotProduct], tile: Tile) -> None:
    """Pack the columns' operand, and tile rows by vectors of columns."""
    name, names, x = found.stage.name, found.names, found.x.dtype.name
    if found.is_packed:
        layout = f"strips{FLIPPED}" if found.flipped else "strips"
    else:
        layout = pack(s, found)
    instruction = dot_name(found.row, x, layout)
    for tall, rows in tiling.cut_rows(s, name, names[0], (tile.rows, *SMALL)):
        for part in tiling.cut(s, tall, names[1], tile.vectors * tile.lanes):
            _tile(s, part, found, names, replace(tile, rows=rows), instruction)


def pack(s: Schedule, found: Products[Row]) -> str:
    """Interleave the columns' operand in groups; returns its layout to a nest."""
    stage, row, (_, columns, steps) = found.stage, found.row, found.sizes
    made = {x.output: x.name for x in stages(s.function) if is_cheap(x.block)}
    buffer = found.w.buffer
    if buffer in made and buffer in set(allocations(s.function)):
        copy, packed = made[buffer], buffer.name
    else:
        copy, packed = s.cache_read(stage.name, buffer.name, "global")
    if found.flipped:
        raise ScheduleError("128 is added where weights are packed, or not at all")
    if columns % row.lanes or steps % row.depth:
        _pad(s, found)
    _, column, k = map(stage.axis, found.loops)
    at, depth = _at(found.w, column), _at(found.w, k)
    if at is None or depth is None:
        raise ScheduleError("the columns' operand is not indexed by the reduction")
    given = [f"d{n}" for n in range(buffer.ndim)]
    rest = [name for n, name in enumerate(given) if n not in (at, depth)]
    laid = (
        f"{given[at]} // {row.lanes}",
        *rest,
        f"{given[depth]} // {row.group}",
        f"{given[at]} % {row.lanes}",
        f"{given[depth]} % {row.group}",
    )
    s.transform_layout(packed, f"lambda {', '.join(given)}: ({', '.join(laid)})")
    last = max(at, depth) == buffer.ndim - 1
    if not last and len(s.loops(copy)) == buffer.ndim:
        _gather(s, copy, found, (at, depth))
    elif not s.attempt(_in_vectors, s, copy, found, (at, depth)):
        tiling.parallelize(s, s.loops(copy)[:1])
    return "rows" if at < depth else "columns"


def _gather(
    s: Schedule, copy: str, found: Products[Row], places: tuple[int, int]
) -> None:
    """Copy vectors of groups, the elements of each from as many places.

    Vectors with padding are copied by themselves.
    """
    around, row, (_, columns, steps) = s.loops(copy), found.row, found.sizes
    column, depth = (around[place] for place in places)
    others = [name for name in around if name not in {column, depth}]
    parts = [copy]
    for loop, known, block in ((depth, steps, row.group), (column, columns, row.lanes)):
        whole = known // block * block
        if 0 < whole < known:
            for part in [*parts]:
                own = next(n for n in s.loops(part) if tiling.is_part(n, loop))
                s.reorder(own, *(name for name in s.loops(part) if name != own))
                parts.append(tiling.cut_at(s, part, own, whole)[1])
    for part in parts:
        inner = s.loops(part)
        column_, depth_, *rest = (
            next(n for n in inner if tiling.is_part(n, name))
            for name in (column, depth, *others)
        )
        column_0, column_1 = s.split(column_, [None, row.lanes])
        depth_0, depth_1 = s.split(depth_, [None, row.group])
        s.reorder(column_0, depth_0, *rest, column_1, depth_1)
        s.vectorize(s.fuse(column_1, depth_1))
        tiling.parallelize(s, [column_0, depth_0])


def _pad(s: Schedule, found: Products[Row]) -> None:
    """Round columns up to whole vectors, and the reduction to whole groups or tiles."""
    stage, row, steps = found.stage, found.row, found.sizes[2]
    _, column, k = map(stage.axis, found.loops)
    multiples = {column: row.lanes, k: row.depth}
    padding = [multiples.get(axis.var, 1) for axis in stage.block.axes]
    if steps % row.depth == 0:
        s.pad(stage.name, padding)
        return
    made = {each.output: each.name for each in stages(s.function)}
    if found.x.buffer in made and found.x.buffer in set(allocations(s.function)):
        s.pad(stage.name, padding)
        return
    copy, _ = s.cache_read(stage.name, found.x.buffer.name, "global")
    s.pad(stage.name, padding)
    *around, depth = s.loops(copy)
    if around and steps > row.lanes and found.x.indices[-1] == k:
        s.reorder(depth, *around)
        tiling.cut_at(s, copy, depth, steps // row.lanes * row.lanes)
        s.reorder(*around, depth)
        s.vectorize(s.split(depth, [None, row.lanes])[1])
    tiling.parallelize(s, around[:1])


def _in_vectors(
    s: Schedule, copy: str, found: Products[Row], places: tuple[int, int]
) -> None:
    """Copy whole vectors: of the reduction, transposed in registers, or of columns.

    Vectors of columns are interleaved in groups. What fills no block, or is padding, is
    copied by itself.

    Args:
        found: The products that read the copy.
        places: The operand's dimensions of the columns and of the reduction.
    """
    around, row, (_, columns, steps) = s.loops(copy), found.row, found.sizes
    dims = [n for n, length in enumerate(found.w.buffer.shape) if length != as_expr(1)]
    if len(around) == found.w.buffer.ndim:
        dims = list(range(len(around)))
    if len(around) != len(dims) or not {*places} <= {*dims}:
        raise ScheduleError(f"block {copy!r} has other loops than the operand")
    column, depth = (around[dims.index(place)] for place in places)
    by_rows = places[0] > places[1]
    wide = row.group if by_rows else row.lanes * row.group
    others = [name for name in around if name not in {column, depth}]
    for loop, known, block in ((depth, steps, wide), (column, columns, row.lanes)):
        whole = known // block * block
        if 0 < whole < (tiling.extent(s, loop) or 0):
            s.reorder(loop, *(name for name in s.loops(copy) if name != loop))
            tiling.cut_at(s, copy, loop, whole)
    column_0, column_1 = s.split(column, [None, row.lanes])
    depth_0, depth_1 = s.split(depth, [None, wide])
    if by_rows:
        around, tile = (*others, depth_0, column_0), (depth_1, column_1)
    else:
        around, tile = (*others, column_0, depth_0), (column_1, depth_1)
    s.reorder(*around, *tile)
    tiling.parallelize(s, around[:-1])
    size = f"rows_{wide}x{row.lanes}" if by_rows else f"columns_{row.lanes}x{wide}"
    kind = found.w.dtype.name
    for name in (f"copy_by_{size}x{kind}", f"flip_by_{size}xi8")[: 1 + (kind == "u8")]:
        if s.attempt(s.tensorize, tile[0], name):
            return
    raise ScheduleError(f"block {copy!r} computes more than a copy")


def _tile(  # noqa: PLR0917 - the parts of a tile
    s: Schedule,
    block: str,
    found: Products[DotProduct],
    names: tuple[str, str, str],
    how: Tile,
    instruction: str,
) -> None:
    """Tile the loops around one block: the stage's or a part split off it."""
    around, row = s.loops(block), found.row
    i, j, k = (next(n for n in around if tiling.is_part(n, name)) for name in names)
    folds = [n for of in found.around for n in around if tiling.is_part(n, of)]
    outer = [n for n in around if n not in (i, j, k, *folds)]
    i_0, i_1 = s.split(i, [None, min(how.rows, tiling.extent(s, i) or how.rows)])
    vectors = min(how.vectors, (tiling.extent(s, j) or row.lanes) // row.lanes)
    j_0, j_1, j_2 = s.split(j, [None, vectors, row.lanes])
    k_0, k_1 = s.split(k, [None, row.group])
    s.reorder(*outer, j_0, i_0, *folds, k_0, i_1, j_1, j_2, k_1)
    write, _ = s.cache_write(block, found.stage.output.name, "register", at=i_0)
    start = s.decompose_reduction(block, [*folds, k_0][0])
    for loop in (i_1, j_1):
        s.unroll(loop)
    s.tensorize(block, instruction)
    for made in (start, write):
        tiling.unroll_inside(s, made, i_0, row.lanes)
    if how.parallel:
        tiling.parallelize(s, [*outer, j_0, i_0])


# ------------------------------------------------------------- lanes of the reduction


def _by_lanes(plan: Plan, found: Products[DotProduct]) -> None:
    """Tiles of sums whose lanes are along the reduction, without packing."""
    s, name, names = plan.s, found.stage.name, found.names
    layout, made = f"along{FLIPPED if found.flipped else ''}", made_factors(s)
    producer = {each.output: each.name for each in stages(s.function)}
    if found.w.buffer in producer and producer[found.w.buffer] in made:
        s.inline(producer[found.w.buffer])
        layout = f"along{FLIPPED}"
    rows, columns, _ = found.sizes
    best = sides(plan, rows or 1, columns)
    tall = plan.knobs.choice("dot_rows", SIDES, default=best[0])
    wide = plan.knobs.choice("dot_columns", SIDES, default=best[1])
    instruction = dot_name(found.row, found.x.dtype.name, layout)
    for narrow in tiling.cut(s, name, names[1], wide):
        for part in tiling.cut(s, narrow, names[0], tall):
            _lanes_tile(plan, part, found, (tall, wide), instruction)


def sides(plan: Plan, rows: int, columns: int) -> tuple[int, int]:
    """The tile, of sums in three quarters of the registers, of the least instructions.

    They are the products of a step and the loads for them, in whole tiles.
    """
    most = plan.core.registers * 3 // 4

    def cost(tile: tuple[int, int]) -> int:
        tall, wide = tile
        tiles = -(-rows // tall) * -(-columns // wide)
        return tiles * (tall * wide + tall + wide)

    tiles = ((tall, wide) for tall in SIDES for wide in SIDES if tall * wide <= most)
    return min(tiles, key=cost)


def _lanes_tile(
    plan: Plan,
    block: str,
    found: Products[DotProduct],
    size: tuple[int, int],
    instruction: str,
) -> None:
    """Tile one part of the results; what fills no vector of factors is added after."""
    s, stage, row = plan.s, found.stage, found.row
    around = s.loops(block)
    i, j, k = (
        next(n for n in around if tiling.is_part(n, name)) for name in found.names
    )
    outer = [n for n in around if n not in (i, j, k)]
    i_0, i_1 = s.split(i, [None, min(size[0], tiling.extent(s, i) or 1)])
    j_0, j_1 = s.split(j, [None, min(size[1], tiling.extent(s, j) or 1)])
    s.reorder(j_0, i_0, *outer, k, i_1, j_1)
    at = [i_0, *outer][-1]
    write, _ = s.cache_write(
        block, stage.output.name, "register", at=at, accumulate=True
    )
    steps, wide = tiling.extent(s, k) or 0, row.lanes * row.group
    rest = tiling.cut_at(s, block, k, steps // wide * wide)[1] if steps % wide else ""
    _, lane, _ = s.split(k, [None, row.lanes, row.group])
    sums, _ = s.rfactor(block, lane, axis=len(stage.output.shape))
    *_, k_0, lane, part, i_1, j_1 = s.loops(sums)
    s.reorder(k_0, i_1, j_1, lane, part)
    start = s.decompose_reduction(sums, k_0)
    for loop in (i_1, j_1):
        s.unroll(loop)
    s.tensorize(sums, instruction)
    for each in filter(None, (start, block, rest)):
        *_, i_1, j_1, lane = s.loops(each)
        if each == rest:
            s.reorder(j_1, lane, i_1)
            i_1, j_1, lane = j_1, lane, i_1
        s.unroll(i_1)
        s.unroll(j_1)
        s.vectorize(lane)
    tiling.write_back(s, write, at)
    if plan.threads:
        tiling.parallelize(s, [j_0, i_0])
