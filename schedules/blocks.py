"""Contractions in blocks for the caches; sizes and order are choices of the search.

    for n_0 in parallel(...):                   # "nkm"; the search tries all six orders
        for k_0 in range(...):
            strips = alloc(...)                 # the columns' operand, packed here
            for m_0 in range(...):
                tiles = alloc(...)              # the rows' operand, packed here
                for n_1, m_1, k_1: a tile of rows by vectors over the block's depth

The loops around a register tile are those of Goto and van de Geijn ("Anatomy of
high-performance matrix multiplication", 2008). A remainder of rows gets tiles of its
own in the same loops, a remainder of columns loops of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir.nodes import Const, For, Load
from tensorlang.schedules.plan import Plan, Tile
from tensorlang.schedules.stages import Stage, column_dimension, extent_of, tile_axes
from tensorlang.schedules.streaming import loop_named, whole_steps
from tensorlang.schedules.tiling import (
    cut,
    cut_at,
    divisors,
    extent,
    is_part,
    parallelize,
)
from tensorlang.scheduling import Schedule

SMALL: Final = (4, 1)  # rows of the tiles for a remainder of unknown length
_ORDERS: Final = ("nkm", "nmk", "mkn", "mnk", "knm", "kmn")
_STRIPS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
_TILES: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
_DEPTHS: Final = (32, 64, 96, 128, 192, 256, 320, 384, 512, 768, 1024, 0)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of a contraction.

    Attributes:
        order: The order of the loops over blocks of columns, rows and depth.
        strips: Strips per block, each as wide as a register tile.
        tiles: Register tiles per block of rows.
        depth: Reduction steps per block; 0 for all.
        packed: Whether each block of the columns' operand is packed.
        rows_packed: Whether each block of the rows' operand is packed.
        strips_first: Whether the loop over strips is outside the loop over tiles.
    """

    order: str
    strips: int = 1
    tiles: int = 1
    depth: int = 0
    packed: bool = True
    rows_packed: bool = False
    strips_first: bool = True


def chosen(plan: Plan) -> Blocks | None:
    """The blocks that the knobs choose; by default none.

    Columns that are not contiguous are always packed.
    """
    knobs, stage = plan.knobs, plan.stage
    order = knobs.choice("blocks", ("none", *_ORDERS), default="none")
    if order == "none":
        return None
    places = [(column_dimension(stage, n), n.buffer.ndim - 1) for n in stage.loads]
    contiguous = all(at in {None, last} for at, last in places)
    return Blocks(
        order,
        knobs.choice("block_strips", _STRIPS, default=1),
        knobs.choice("block_tiles", _TILES, default=1),
        knobs.choice("block_depth", _DEPTHS, default=0),
        not contiguous or knobs.flag("packed", default=True),
        knobs.flag("rows_packed", default=False),
        knobs.flag("strips_first", default=True),
    )


@dataclass(frozen=True, slots=True)
class _Nest:
    """The loops of whole strips, by role; their names are those of the main part.

    Attributes:
        outer: Batches: what neither rows nor columns index.
        around: Blocks of columns (n), rows (m) and, if split, depth (k), in order.
        strips: Strips of a block.
        inside: Columns of a strip.
        folded: The reduction inside of a block.
    """

    s: Schedule
    outer: tuple[str, ...]
    around: dict[str, str]
    strips: str
    inside: str
    folded: tuple[str, ...]

    def part(self, block: str, name: str) -> str:
        """The loop of this name, or the one split off it, around a block."""
        return next(n for n in self.s.loops(block) if is_part(n, name))

    def last(self, kinds: str) -> str:
        """The innermost loop over blocks of these kinds."""
        return [kind for kind in self.around if kind in kinds][-1]

    def shares(self, kind: str) -> bool:
        """Whether all parts of the rows are inside the loop of this kind."""
        order = list(self.around)
        return order.index(kind) < order.index("m")


def by_blocks(plan: Plan, tile: Tile, how: Blocks) -> None:
    """Schedule a contraction.

    Columns that fill no strip get narrower strips in loops of their own.

    Raises:
        ScheduleError: the sizes do not suit.
    """
    s, stage = plan.s, plan.stage
    found = tile_axes(stage)
    loads = [load for load in stage.loads if column_dimension(stage, load) is not None]
    if found is None or len(loads) != 1:
        raise ScheduleError(f"block {stage.name!r} is not a contraction of matrices")
    length = extent_of(found[1])
    if length is None:
        raise ScheduleError(f"block {stage.name!r} has an unknown number of columns")
    rest, whole = stage.name, tile.vectors * tile.lanes
    for width in (whole, tile.lanes, 1):
        if length < width:
            continue
        block, *left = cut(s, rest, found[1].var.name, width)
        lanes = min(tile.lanes, length)
        vectors = tile.vectors if width == whole else length // lanes
        part = replace(tile, vectors=vectors, lanes=lanes)
        _strips(s, block, stage, loads[0], how, part)
        if not left:
            return
        rest, length = left[0], length % width


def _strips(  # noqa: PLR0917 - the parts of a contraction
    s: Schedule, block: str, stage: Stage, load: Load, how: Blocks, tile: Tile
) -> None:
    """Schedule whole strips."""
    width = tile.vectors * tile.lanes
    nest = _nest(s, block, stage, how, width)
    packed = how.packed and not is_packed(stage, load, width)
    copies: dict[str, tuple[str, str]] = {}
    at = nest.last("nk")
    if packed and nest.shares(at):
        copies[block] = s.cache_read(block, load.buffer.name, "global")
    parts = _row_parts(s, block, nest.around["m"], tile.rows, how.tiles)
    heads = {}
    for part, tiles, rows in parts:
        if packed and not nest.shares(at):
            copies[part] = s.cache_read(part, load.buffer.name, "global")
        heads[part] = _tile(nest, part, stage, how, tile, (tiles, rows))
        if how.rows_packed and tiles > 1:
            _pack_rows(nest, part, stage, heads[part], tile.lanes)
    for part, (copy, strips) in copies.items():
        s.compute_at(copy, nest.part(part, nest.around[at]))
        _pack(s, stage, load, copy, strips, tile.lanes)
    _distribute(nest, heads)


def _nest(s: Schedule, block: str, stage: Stage, how: Blocks, width: int) -> _Nest:
    """Split columns and depth into blocks, and put the loops in order."""
    found = tile_axes(stage)
    assert found is not None
    folds = [loop.var.name for loop in stage.driven("reduction")]
    row, column, *folds = (
        next(name for name in s.loops(block) if is_part(name, wanted))
        for wanted in (*(loop.var.name for loop in found), *folds)
    )
    outer = [name for name in s.loops(block) if name not in {row, column, *folds}]
    count = (extent(s, column) or width) // width
    n_0, strips, inside = s.split(column, [None, _nearest(count, how.strips), width])
    blocks = {"n": n_0, "m": row}
    steps = extent(s, folds[-1])
    if steps is not None and 0 < how.depth < steps:
        blocks["k"], folds[-1] = s.split(folds[-1], [None, _nearest(steps, how.depth)])
    around = {kind: blocks[kind] for kind in how.order if kind in blocks}
    s.reorder(*outer, *around.values(), strips, inside, *folds)
    return _Nest(s, tuple(outer), around, strips, inside, tuple(folds))


def _nearest(count: int, wanted: int) -> int:
    """The divisor of a count that is nearest to what is wanted."""
    return min(divisors(count), key=lambda n: max(n / wanted, wanted / n))


def _row_parts(
    s: Schedule, block: str, row: str, rows: int, tiles: int
) -> list[tuple[str, int, int]]:
    """Parts of the rows, with the tiles of a block and the rows of a tile in each.

    First whole blocks, then whole tiles, then what is left: one tile if the number of
    rows is known, smaller ones otherwise.
    """
    length = extent(s, row)
    sizes = [(tiles, rows)] * (tiles > 1) + [(1, rows)]
    if length is None:
        sizes += [(1, n) for n in SMALL if n < rows]
    found: list[tuple[str, int, int]] = []
    for many, tall in sizes:
        loop = next(name for name in s.loops(block) if is_part(name, row))
        left = loop_named(s, loop).extent
        whole = whole_steps(s, left, many * tall)
        if whole == left or tall == 1:
            return [*found, (block, many, tall)]
        if (known := extent(s, loop)) is not None and known < many * tall:
            continue
        block, rest = cut_at(s, block, loop, whole)
        found.append((block, many, tall))
        block = rest
    loop = next(name for name in s.loops(block) if is_part(name, row))
    return [*found, (block, 1, extent(s, loop) or 1)]


def _tile(  # noqa: PLR0917 - the parts of a tile
    nest: _Nest,
    block: str,
    stage: Stage,
    how: Blocks,
    tile: Tile,
    size: tuple[int, int],
) -> dict[str, str]:
    """Tile one part of the rows; returns its loops over blocks by kind."""
    s = nest.s
    around = {kind: nest.part(block, name) for kind, name in nest.around.items()}
    strips, inside, *folded = (
        nest.part(block, name) for name in (nest.strips, nest.inside, *nest.folded)
    )
    around["m"], tiles, i = s.split(around["m"], [None, *size])
    vector, lane = s.split(inside, [None, tile.lanes])
    inner = (strips, tiles) if how.strips_first else (tiles, strips)
    kinds = list(around)
    shared = [around[kind] for kind in kinds[kinds.index("m") :]]
    s.reorder(*shared, *inner, *folded, i, vector, lane)
    write, _ = s.cache_write(
        block, stage.output.name, "register", at=inner[-1], accumulate=True
    )
    for loop in (i, vector):
        s.unroll(loop)
    s.vectorize(lane)
    _write_back(s, write, inner[-1], tile.lanes)
    return around


def _write_back(s: Schedule, write: str, at: str, lanes: int) -> None:
    """Unroll and vectorize a tile's write-back, which keeps the tile in registers."""
    own = s.loops(write)
    inside = own[own.index(at) + 1 :]
    if not inside:
        return
    *others, last = inside
    if (extent(s, last) or 0) > lanes:
        vector, last = s.split(last, [None, lanes])
        others.append(vector)
    for loop in others:
        s.unroll(loop)
    s.vectorize(last)


def _pack(  # noqa: PLR0917 - the parts of a copy
    s: Schedule, stage: Stage, load: Load, copy: str, strip: str, lanes: int
) -> None:
    """Pack one strip: transposed in registers, or row by row."""
    at, rank = column_dimension(stage, load), load.buffer.ndim
    assert at is not None
    given = [f"d{n}" for n in range(rank)]
    if at == rank - 1:
        last = s.loops(copy)[-1]
        _, lane = s.split(last, [None, lanes])
        s.vectorize(lane)
        return
    laid = [*given[:at], *given[at + 1 :], given[at]]
    s.transform_layout(strip, f"lambda {', '.join(given)}: ({', '.join(laid)})")
    s.attempt(
        _transpose,
        s,
        copy,
        lanes,
        f"copy_by_columns_{lanes}x{lanes}x{load.buffer.dtype}",
    )


def _transpose(s: Schedule, copy: str, lanes: int, intrinsic: str) -> None:
    """Copy a matrix's strip in square blocks, transposed in registers."""
    column, depth = s.loops(copy)[-2:]
    length = extent(s, depth)
    if length is None or length < lanes:
        raise ScheduleError("the strip is not deep enough for a block")
    if length % lanes:
        s.reorder(depth, column)
        s.partition(depth, length // lanes * lanes)
    column_0, column_1 = s.split(column, [None, lanes])
    depth_0, depth_1 = s.split(depth, [None, lanes])
    s.reorder(column_0, depth_0, column_1, depth_1)
    s.tensorize(column_1, intrinsic)


def is_packed(stage: Stage, load: Load, width: int) -> bool:
    """Whether the columns are already in strips that combine to `width`."""
    last = load.buffer.shape[-1]
    if column_dimension(stage, load) != load.buffer.ndim - 1 or not isinstance(
        last, Const
    ):
        return False
    return load.buffer.ndim > 2 and width % max(int(last.value), 1) == 0


def _pack_rows(
    nest: _Nest, block: str, stage: Stage, around: dict[str, str], lanes: int
) -> None:
    """Copy each block of the rows' operand, so that its rows are near each other."""
    s, row = nest.s, _rows_operand(stage)
    copy, _ = s.cache_read(block, row.buffer.name, "global")
    s.compute_at(copy, around[nest.last("mk")])
    _, lane = s.split(s.loops(copy)[-1], [None, lanes])
    s.vectorize(lane)


def _rows_operand(stage: Stage) -> Load:
    loads = [load for load in stage.loads if column_dimension(stage, load) is None]
    if len(loads) != 1:
        raise ScheduleError(f"block {stage.name!r} reads several operands by rows")
    return loads[0]


def _distribute(nest: _Nest, heads: dict[str, dict[str, str]]) -> None:
    """Distribute the outermost loops that are no reduction over threads."""
    s, order = nest.s, "".join(nest.around)
    if not nest.outer and extent(s, nest.around["n"]) == 1:
        order = "m"
    for around in heads.values():
        free = [around[kind] for kind in order.partition("k")[0] or order.strip("k")]
        first, *others = [*nest.outer, *free]
        body, names = loop_named(s, first).body, [first]
        while others and isinstance(body, For) and body.var.name == others[0]:
            body, names = body.body, [*names, others.pop(0)]
        parallelize(s, names)
        if first != around["m"]:
            return  # all parts of the rows are inside
