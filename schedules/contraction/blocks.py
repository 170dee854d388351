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

from dataclasses import replace

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.ir.nodes import For, Load
from tensorlang.schedules import tiling
from tensorlang.schedules.contraction.packing import (
    in_rows,
    is_packed,
    pack_strips,
    pack_whole,
)
from tensorlang.schedules.contraction.space import SMALL, Blocks, Tile
from tensorlang.schedules.plan import Plan
from tensorlang.schedules.stages import Stage, column_dimension, extent_of, tile_axes
from tensorlang.schedules.streaming import loop_named, whole_steps
from tensorlang.scheduling import Schedule


@frozen
class _Nest:
    """The loops of whole strips, by role; their names are those of the main part."""

    s: Schedule
    outer: tuple[str, ...]  # batches: what neither rows nor columns index
    # blocks of columns (n), rows (m) and, if split, depth (k), in order
    around: dict[str, str]
    strips: str  # strips of a block
    inside: str  # columns of a strip
    folded: tuple[str, ...]  # reduction inside of a block

    def part(self, block: str, name: str) -> str:
        """The loop of this name, or the one split off it, around a block."""
        return next(n for n in self.s.loops(block) if tiling.is_part(n, name))

    def last(self, kinds: str) -> str:
        """The innermost loop over blocks of these kinds."""
        return [kind for kind in self.around if kind in kinds][-1]

    def shares(self, kind: str) -> bool:
        """Whether all parts of the rows are inside the loop of this kind."""
        order = list(self.around)
        return order.index(kind) < order.index("m")


def by_blocks(plan: Plan, tile: Tile, how: Blocks) -> None:
    """Schedule a contraction; columns that are not contiguous are always packed.

    Columns that fill no strip get narrower strips in loops of their own.

    Raises:
        ScheduleError: the sizes do not suit.
    """
    s, stage = plan.s, plan.stage
    found = tile_axes(stage)
    loads = [load for load in stage.loads if column_dimension(stage, load) is not None]
    if found is None or len(loads) != 1:
        raise ScheduleError("several operands have the columns of this contraction")
    length = extent_of(found[1])
    if length is None:
        raise ScheduleError(f"block {stage.name!r} has an unknown number of columns")
    rest, whole = stage.name, tile.vectors * tile.lanes
    if how.packing == "none" and not in_rows(stage):
        how = replace(how, packing="inside")
    if how.packing == "before":
        pack_whole(s, stage, tile)
    for width in (whole, tile.lanes, 1):
        if length < width:
            continue
        block, *left = tiling.cut(s, rest, found[1].var.name, width)
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
    packed = how.packing == "inside" and not is_packed(stage, load, width)
    at_column = column_dimension(stage, load)
    assert at_column is not None
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
    for part, copied in copies.items():
        s.compute_at(copied[0], nest.part(part, nest.around[at]))
        pack_strips(s, load, at_column, copied, tile)
    _distribute(nest, heads)


def _nest(s: Schedule, block: str, stage: Stage, how: Blocks, width: int) -> _Nest:
    """Split columns and depth into blocks, and put the loops in order."""
    found = tile_axes(stage)
    assert found is not None
    folds = [loop.var.name for loop in stage.driven("reduction")]
    row, column, *folds = (
        next(name for name in s.loops(block) if tiling.is_part(name, wanted))
        for wanted in (*(loop.var.name for loop in found), *folds)
    )
    outer = [name for name in s.loops(block) if name not in {row, column, *folds}]
    count = (tiling.extent(s, column) or width) // width
    n_0, strips, inside = s.split(
        column, [None, tiling.nearest(count, how.strips), width]
    )
    blocks = {"n": n_0, "m": row}
    steps = tiling.extent(s, folds[-1])
    if steps is not None and 0 < how.depth < steps:
        depth = tiling.nearest(steps, how.depth)
        if depth < steps:  # else one block, whose sums need no accumulating in memory
            blocks["k"], folds[-1] = s.split(folds[-1], [None, depth])
    around = {kind: blocks[kind] for kind in how.order if kind in blocks}
    s.reorder(*outer, *around.values(), strips, inside, *folds)
    return _Nest(s, tuple(outer), around, strips, inside, tuple(folds))


def _row_parts(
    s: Schedule, block: str, row: str, rows: int, tiles: int
) -> list[tuple[str, int, int]]:
    """Parts of the rows, with the tiles of a block and the rows of a tile in each.

    First whole blocks, then whole tiles, then what is left: one tile if the number of
    rows is known, smaller ones otherwise.
    """
    length = tiling.extent(s, row)
    sizes = [(tiles, rows)] * (tiles > 1) + [(1, rows)]
    if length is None:
        sizes += [(1, n) for n in SMALL if n < rows]
    found: list[tuple[str, int, int]] = []
    for many, tall in sizes:
        loop = next(name for name in s.loops(block) if tiling.is_part(name, row))
        left = loop_named(s, loop).extent
        whole = whole_steps(s, left, many * tall)
        if whole == left or tall == 1:
            return [*found, (block, many, tall)]
        if (known := tiling.extent(s, loop)) is not None and known < many * tall:
            continue
        block, rest = tiling.cut_at(s, block, loop, whole)
        found.append((block, many, tall))
        block = rest
    loop = next(name for name in s.loops(block) if tiling.is_part(name, row))
    return [*found, (block, 1, tiling.extent(s, loop) or 1)]


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
    tiling.unroll_inside(s, write, inner[-1], tile.lanes)
    return around


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
    batches = [name for name in nest.outer if tiling.extent(s, name) != 1]
    if not batches and tiling.extent(s, nest.around["n"]) == 1:
        order = "m"
    for around in heads.values():
        free = [around[kind] for kind in order.partition("k")[0] or order.strip("k")]
        first, *others = [*batches, *free]
        body, names = loop_named(s, first).body, [first]
        while others and isinstance(body, For) and body.var.name == others[0]:
            body, names = body.body, [*names, others.pop(0)]
        tiling.parallelize(s, names)
        if first != around["m"]:
            return  # all parts of the rows are inside
