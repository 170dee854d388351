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

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from math import ceil, prod
from typing import Final, Generic, TypeVar

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.instructions import DotProduct, MatrixProduct, dot_product
from tensorlang.ir.contents import allocations
from tensorlang.ir.nodes import (
    Binary,
    Cast,
    Const,
    Expr,
    For,
    Load,
    Reduce,
    Var,
    as_expr,
)
from tensorlang.ir.visit import walk
from tensorlang.schedules import tiling
from tensorlang.schedules.contraction.space import (
    ROWS,
    SIDES,
    SMALL,
    USUAL_SIZE,
    VECTORS,
    Tile,
)
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
from tensorlang.schedules.streaming import whole_steps
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
    def sizes(self) -> tuple[int | None, int, int | None]:
        """The rows, columns and steps of the reduction along `x`, where known."""
        rows, columns, steps = map(extent_of, self.loops)
        return rows, columns or 0, steps

    @property
    def is_apart(self) -> bool:
        """Whether groups of the rows' operand are not contiguous: it is packed, too."""
        return self.x.indices[-1] != self.stage.axis(self.loops[2])

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

    It multiplies two loads, converted to the type of the sums. The number of columns is
    known. Of several reductions, of known lengths, one is along the last dimension of
    the rows' operand.
    """
    found, folded, update = tile_axes(stage), stage.driven("reduction"), stage.update
    if s.target is None or found is None or not folded:
        return None
    column, sizes = stage.axis(found[1]), [extent_of(loop) for loop in folded]
    match update:
        case Reduce(values=(Binary("mul", Cast(_, Load() as x), Cast(_, factor)),)):
            if column in variables(x) and isinstance(factor, Load):
                x, factor = factor, x
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
    unknown = extent_of(found[1]) is None or (len(sizes) > 1 and None in sizes)
    if row is None or row.sums != stage.output.dtype.name or unknown:
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
    if found.is_apart:
        rows = rows or USUAL_SIZE
    if not rows:
        return None
    loops = found.stage.driven("reduction")
    steps = ceil(
        prod(extent_of(loop) or USUAL_SIZE for loop in loops) / found.row.group
    )
    few = plan.core.addresses  # rows in several lines have an address each
    heights = [n for n in ROWS if found.is_apart or n <= few or _in_line(found, n)]
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
        or steps is None
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
        layout = pack(s, found, tile.rows)
    instruction = dot_name(found.row, x, layout)
    for tall, rows in tiling.cut_rows(s, name, names[0], (tile.rows, *SMALL)):
        for part in tiling.cut(s, tall, names[1], tile.vectors * tile.lanes):
            _tile(s, part, found, names, replace(tile, rows=rows), instruction)


def pack(s: Schedule, found: Products[Row], rows: int = 0) -> str:
    """Interleave the columns' operand in groups; returns its layout to a nest.

    The rows' operand, too, if a tile's `rows` are given and its groups are apart.
    """
    stage, row, (_, columns, steps) = found.stage, found.row, found.sizes
    if found.flipped:
        raise ScheduleError("128 is added where weights are packed, or not at all")
    row_axis, column, k = map(stage.axis, found.loops)
    sides = [_Side(found.w, column, row.lanes)]
    if rows and found.is_apart:
        sides.append(_Side(found.x, row_axis, rows))
        if found.x.buffer == found.w.buffer:
            raise ScheduleError("both operands are the same array")
    copies = [_copied(s, stage, side.load) for side in sides]
    if columns % row.lanes or steps is None or steps % row.depth:
        _pad(s, found, padded=len(sides) > 1)
    for side, (copy, packed) in zip(sides, copies, strict=True):
        _interleave(s, copy, packed, found, side)
    at, depth = (_at(found.w, axis) or 0 for axis in (column, k))
    return "rows" if at < depth else "columns"


@frozen
class _Side:
    """An operand that is packed in strips."""

    load: Load
    axis: Var  # axis of the rows or of the columns
    wide: int  # elements along it in a strip


def _maker(s: Schedule, load: Load) -> Stage | None:
    """The stage that makes an operand, if it is a temporary."""
    if load.buffer not in set(allocations(s.function)):
        return None
    return next((x for x in stages(s.function) if x.output == load.buffer), None)


def _copied(s: Schedule, stage: Stage, load: Load) -> tuple[str, str]:
    """The block that makes an operand, or a copy of it, and the name of either."""
    maker = _maker(s, load)
    if maker is not None and is_cheap(maker.block):
        return maker.name, load.buffer.name
    return s.cache_read(stage.name, load.buffer.name, "global")


def _interleave(
    s: Schedule, copy: str, packed: str, found: Products[Row], side: _Side
) -> None:
    """Lay out an operand in strips of groups, and vectorize the block that makes it."""
    buffer, group = side.load.buffer, found.row.group
    k = found.stage.axis(found.loops[2])
    at, depth = _at(side.load, side.axis), _at(side.load, k)
    if at is None or depth is None:
        raise ScheduleError("a packed operand is not indexed by the reduction")
    given = [f"d{n}" for n in range(buffer.ndim)]
    rest = [name for n, name in enumerate(given) if n not in (at, depth)]
    laid = (
        f"{given[at]} // {side.wide}",
        *rest,
        f"{given[depth]} // {group}",
        f"{given[at]} % {side.wide}",
        f"{given[depth]} % {group}",
    )
    s.transform_layout(packed, f"lambda {', '.join(given)}: ({', '.join(laid)})")
    last = max(at, depth) == buffer.ndim - 1
    if not last and len(s.loops(copy)) == buffer.ndim:
        _gather(s, copy, found, side, (at, depth))
    elif not s.attempt(_in_vectors, s, copy, found, side, (at, depth)):
        tiling.parallelize(s, s.loops(copy)[:1])


def _gather(
    s: Schedule,
    copy: str,
    found: Products[Row],
    side: _Side,
    places: tuple[int, int],
) -> None:
    """Copy vectors of groups, the elements of each from as many places.

    Vectors with padding are copied by themselves.
    """
    around, row = s.loops(copy), found.row
    along, depth = (around[place] for place in places)
    others = [name for name in around if name not in {along, depth}]
    parts = [copy]
    for loop, whole in _wholes(s, found, side, (along, depth), row.group):
        for part in [*parts]:
            own = next(n for n in s.loops(part) if tiling.is_part(n, loop))
            s.reorder(own, *(name for name in s.loops(part) if name != own))
            parts.append(tiling.cut_at(s, part, own, whole)[1])
    for part in parts:
        inner = s.loops(part)
        along_, depth_, *rest = (
            next(n for n in inner if tiling.is_part(n, name))
            for name in (along, depth, *others)
        )
        along_0, along_1 = s.split(along_, [None, side.wide])
        depth_0, depth_1 = s.split(depth_, [None, row.group])
        s.reorder(along_0, depth_0, *rest, along_1, depth_1)
        s.vectorize(s.fuse(along_1, depth_1))
        tiling.parallelize(s, [along_0, depth_0])


def _wholes(
    s: Schedule,
    found: Products[Row],
    side: _Side,
    loops: tuple[str, str],
    deep: int,
) -> Iterator[tuple[str, Expr]]:
    """The loops over an operand with remainders, and the steps of what has none.

    Args:
        loops: The loops along the strips' elements and along the reduction.
        deep: Steps of the reduction that are copied together.
    """
    row, column, steps = (loop.extent for loop in found.loops)
    size = row if side.load == found.x else column
    for loop, extent, block in zip(
        loops, (size, steps), (side.wide, deep), strict=True
    ):
        whole = whole_steps(s, extent, block)
        padded = isinstance(whole, Const) and tiling.extent(s, loop) == whole.value
        if whole not in {extent, as_expr(0)} and not padded:
            yield loop, whole


def _pad(s: Schedule, found: Products[Row], *, padded: bool) -> None:
    """Round columns up to whole vectors, and the reduction to whole groups or tiles.

    Args:
        found: The products.
        padded: Whether the block reads a copy of the rows' operand already.
    """
    stage, row, steps = found.stage, found.row, found.sizes[2]
    _, column, k = map(stage.axis, found.loops)
    multiples = {column: row.lanes, k: row.depth}
    padding = [multiples.get(axis.var, 1) for axis in stage.block.axes]
    whole = steps is not None and steps % row.depth == 0
    if whole or padded or _maker(s, found.x):
        s.pad(stage.name, padding)
        return
    copy, _ = s.cache_read(stage.name, found.x.buffer.name, "global")
    s.pad(stage.name, padding)
    *around, depth = s.loops(copy)
    if around and (steps or 0) > row.lanes and found.x.indices[-1] == k:
        s.reorder(depth, *around)
        tiling.cut_at(s, copy, depth, (steps or 0) // row.lanes * row.lanes)
        s.reorder(*around, depth)
        s.vectorize(s.split(depth, [None, row.lanes])[1])
    tiling.parallelize(s, around[:1])


def _in_vectors(
    s: Schedule,
    copy: str,
    found: Products[Row],
    side: _Side,
    places: tuple[int, int],
) -> None:
    """Copy whole vectors: of the reduction, transposed in registers, or of a strip.

    Vectors of a strip are interleaved in groups. What fills no block, or is padding, is
    copied by itself.

    Args:
        found: The products that read the copy.
        side: The operand.
        places: Its dimensions of the strips and of the reduction.
    """
    around, row, shape = s.loops(copy), found.row, side.load.buffer.shape
    dims = [n for n, length in enumerate(shape) if length != as_expr(1)]
    if len(around) == len(shape):
        dims = list(range(len(around)))
    if len(around) != len(dims) or not {*places} <= {*dims}:
        raise ScheduleError(f"block {copy!r} has other loops than the operand")
    along, depth = (around[dims.index(place)] for place in places)
    by_rows = places[0] > places[1]
    deep = row.group if by_rows else side.wide * row.group
    others = [name for name in around if name not in {along, depth}]
    for loop, whole in _wholes(s, found, side, (along, depth), deep):
        s.reorder(loop, *(name for name in s.loops(copy) if name != loop))
        tiling.cut_at(s, copy, loop, whole)
    along_0, along_1 = s.split(along, [None, side.wide])
    depth_0, depth_1 = s.split(depth, [None, deep])
    if by_rows:
        strips = tiling.nearest(tiling.extent(s, along_0) or 1, VECTORS[-1])
        along_0, along_2 = s.split(along_0, [None, strips])
        around = (*others, along_0, depth_0, along_2)
        tile = depth_1, along_1
    else:
        around, tile = (*others, along_0, depth_0), (along_1, depth_1)
    s.reorder(*around, *tile)
    tiling.parallelize(s, around[:-1])
    size = f"rows_{deep}x{side.wide}" if by_rows else f"columns_{side.wide}x{deep}"
    kind = side.load.dtype.name
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
