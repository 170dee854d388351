"""`cache_write`: register tiles for results, with plain or accumulating write-back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TypeGuard

from tensorlang.errors import ScheduleError
from tensorlang.ir import nodes as ir
from tensorlang.ir.accesses import buffers_of
from tensorlang.ir.contents import free_vars, names, touches
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.visit import fresh, substitute, walk
from tensorlang.scheduling.analysis.coverage import bounds_of, dense, guards_of
from tensorlang.scheduling.analysis.guarding import carried_guards, ends, plain_axis
from tensorlang.scheduling.analysis.legality import legality
from tensorlang.scheduling.analysis.places import (
    Site,
    extents,
    need_alive,
    only_loops,
    site,
    stored,
    takes,
)
from tensorlang.scheduling.analysis.regions import Region, region, relax, whole
from tensorlang.scheduling.analysis.tiles import (
    copy_over,
    loop_kind,
    need_known,
    tile_of,
)
from tensorlang.scheduling.analysis.tree import acting, called, find_buffer
from tensorlang.scheduling.primitives import primitive
from tensorlang.scheduling.steps.cache import constant_tile, localized
from tensorlang.scheduling.steps.memory import outside_of_threads
from tensorlang.scheduling.steps.partials import (
    FOLDED,
    loop_axis,
    moved_init,
    none_empty,
    only_reduces,
    partial,
)


@legality("a cached result is used by its own block only")
def sole_user(place: Site, buffers: tuple[ir.Buffer, ...]) -> str | None:
    """No other block in the nest reads or writes what is cached."""
    for other in acting(place.child):
        if other is not place.block and any(touches(other, b) for b in buffers):
            return (
                f"{called(other)} uses {buffers[0].name!r} in the same nest as "
                f"{place.block.name!r}; cache under a loop that it is not in"
            )
    return None


@legality("a cached reduction is complete when it is written back")
def complete_under(place: Site) -> str | None:
    """All reduction loops are inside the scope of the tile."""
    for loop in _reduction_loops(place):
        return (
            f"loop {loop.var.name!r} reduces block {place.block.name!r} and is outside "
            "the tile: cache further out, or with accumulate=True"
        )
    return None


@legality("a cached reduction initializes its own state")
def own_start(
    place: Site, update: ir.Store | ir.Reduce, *, accumulate: bool = False
) -> str | None:
    """The block neither updates previous contents nor relies on an init block.

    Unless the write-back accumulates over reduction loops outside the tile: then it
    continues from the previous contents.
    """
    block = place.block
    own = {n.indices for n in walk(block.body) if _loads_state(n, update)}
    if own - {update.indices} or (own and isinstance(update, ir.Reduce)):
        return (
            f"block {block.name!r} reads other elements of "
            f"{buffers_of(update)[0].name!r}, which would still be in the tile"
        )
    folds = any(axis.kind == "reduction" for axis in block.axes)
    again = bool(own) and any(axis.kind in FOLDED for axis in block.axes)
    if isinstance(update, ir.Store) and not again:
        return None
    if isinstance(update, ir.Reduce) and folds and block.init != ir.seq():
        return None
    if folds and accumulate and _reduction_loops(place):
        return None
    return (
        f"block {block.name!r} goes on from what {buffers_of(update)[0].name!r} holds; "
        "cache_write before decompose_reduction, and not an update in place"
    )


def _loads_state(node: ir.Node, update: ir.Store | ir.Reduce) -> TypeGuard[ir.Load]:
    return isinstance(node, ir.Load) and node.buffer in buffers_of(update)


@legality("the block writes every element of its tile")
def fills_tile(place: Site, update: ir.Store | ir.Reduce) -> str | None:
    """Every element that is written back has been computed."""
    block = place.block
    values = {axis.var: linear(axis.value) for axis in block.axes}
    named = [plain_axis(index) for index in update.indices]
    driven = [values.get(var) for var in named if var is not None]
    plain = all(
        plain_axis(i) is not None or not free_vars(i) & values.keys()
        for i in update.indices
    )
    known = [value for value in driven if value is not None]
    reached = dense(known, extents(place.inner))
    moving = [value for value in known if value.vars]  # others are constant
    once = len(set(moving)) == len(moving) and len(known) == len(driven)
    again = {loop.var for loop in place.inner} - set().union(*(v.vars for v in known))
    if again and any(_loads_state(n, update) for n in walk(block.body)):
        once = False
    guarded = all(_known_guard(place, update, cond) for cond in guards_of(block))
    exact = _takes_tile(place, update)
    if plain and reached and once and guarded and exact and only_loops(place):
        return None
    return (
        f"block {block.name!r} may leave elements of its tile unwritten: its loops do "
        "not run densely over the axes it stores by, or a condition other than the end "
        "of an axis guards it; reindex it first"
    )


def _takes_tile(place: Site, update: ir.Store | ir.Reduce) -> bool:
    """Whether the inner loops cover all of the tile."""
    values = {axis.var: axis.value for axis in place.block.axes}
    part = _written(place, buffers_of(update)[0])
    for index, wanted in zip(update.indices, part, strict=True):
        placed = substitute(index, values)
        found = relax(placed, place.inner_ranges)
        if found is None or not takes(found, wanted, place.path[: place.depth + 1]):
            return False
    return True


def _known_guard(place: Site, update: ir.Store | ir.Reduce, cond: ir.Expr) -> bool:
    """Whether a condition is constant over a tile, or bounds an axis or a reduction."""
    if not free_vars(cond) & {loop.var for loop in place.inner}:
        return True
    folded = {axis.var for axis in place.block.axes if axis.kind in FOLDED}
    return bool(ends(place, update.indices, cond)) or any(
        bound.axis in folded for bound in bounds_of(place.block, cond)
    )


def _reduction_loops(place: Site) -> tuple[ir.For, ...]:
    """The loops from `at` outwards that drive reduction or ordered axes."""
    return tuple(
        loop for loop in place.outer if loop_kind(place.block, loop.var) in FOLDED
    )


@primitive
def cache_write(
    func: ir.Function,
    block: str,
    buffer: str,
    scope: str,
    at: str | None = None,
    *,
    accumulate: bool = False,
) -> tuple[ir.Function, tuple[str, str]]:
    """Compute into a new buffer that is written back when it is complete.

    All components of a tuple state are cached together.

    Args:
        block: The writer.
        buffer: A buffer it writes.
        scope: The memory of the tile: `global`, `shared`, `register`, `private`.
        at: The loop in whose body the tile is allocated, for the region written there.
            By default it is the whole buffer, written back by a nest after the block's.
        accumulate: The write-back reduces the tile into the buffer, so that reduction
            loops may be outside the tile.

    Returns:
        The function, and the names of the writing-back block and of the new buffer.

    Raises:
        ScheduleError: the reduction is not complete, tile elements stay unwritten, or
            another block uses the buffer in the nest.

    Before:

        for i in range(2):
            for k in range(8):
                for j in range(16):
                    with block("y", vi=spatial(32, i * 16 + j), vk=reduction(8, k)):
                        reduce(sum, y[vi], x[vi, vk])

    After `cache_write("y", "y", "register", at="i")`:

        for i in range(2):
            y_register = alloc(f32[16], scope="register")
            for k in range(8):
                for j in range(16):
                    with block("y", vi=spatial(32, i * 16 + j), vk=reduction(8, k),
                               vi_in=spatial(16, j)):
                        reduce(sum, y_register[vi_in], x[vi, vk])
            for i_1 in range(16):
                with block("y_register_write", vi_1=spatial(32, i * 16 + i_1),
                           vi_1_in=spatial(16, i_1)):
                    y[vi_1] = y_register[vi_1_in]

    After `cache_write("y", "y", "register", at="k", accumulate=True)` of the same:

        for i in range(2):
            for k in range(8):
                y_register = alloc(f32[16], scope="register")
                for j in range(16):
                    with block("y", vi=spatial(32, i * 16 + j), vi_in=spatial(16, j),
                               vk_at=spatial(8, k), vk_in=reduction(1, 0)):
                        reduce(sum, y_register[vi_in], x[vi, vk_at])
                for i_1 in range(16):
                    with block("y_register_write", vi_1=spatial(32, i * 16 + i_1),
                               vi_1_in=spatial(16, i_1), vk=reduction(8, k)):
                        reduce(sum, y[vi_1], y_register[vi_1_in])
    """
    place = site(func, block, at)
    update = _update_of(place, find_buffer(func, buffer))
    buffers = buffers_of(update)
    for held in buffers:
        need_alive(place, held)
    own_start(place, update, accumulate=accumulate)
    sole_user(place, buffers)
    if accumulate:
        _need_fold(place, update)
        for loop in _reduction_loops(place):
            only_reduces(place.block, loop)
        none_empty(place.block, _reduction_loops(place), place.ranges)
        accumulate = bool(_reduction_loops(place))
    else:
        complete_under(place)
    fills_tile(place, update)
    return _cached(place, update, buffers, scope, accumulate=accumulate)


def _need_fold(place: Site, update: ir.Store | ir.Reduce) -> None:
    """Partial results are combined in program order, so any reducer is allowed."""
    if isinstance(update, ir.Store):
        raise ScheduleError(
            f"block {place.block.name!r} stores and reduces nothing to accumulate; "
            "leave accumulate out"
        )
    if len(stored(place.block)) > 1:
        raise ScheduleError(
            f"block {place.block.name!r} updates {len(stored(place.block))} states, "
            "which start together; accumulate takes one that is alone"
        )


def _update_of(place: Site, target: ir.Buffer) -> ir.Store | ir.Reduce:
    found = [u for u in stored(place.block) if target in buffers_of(u)]
    if len(found) == 1:
        return found[0]
    raise ScheduleError(
        f"block {place.block.name!r} writes {target.name!r} in {len(found)} places; "
        "cache_write needs exactly one"
    )


def _cached(
    place: Site,
    update: ir.Store | ir.Reduce,
    buffers: tuple[ir.Buffer, ...],
    scope: str,
    *,
    accumulate: bool,
) -> tuple[ir.Function, tuple[str, str]]:
    taken = names(place.func)
    part = _written(place, buffers[0])
    constant_tile(buffers[0], part, scope)
    tiles = {
        b: tile_of(b, part, fresh(f"{b.name}_{scope}", taken), scope) for b in buffers
    }
    outside_of_threads(tiles[buffers[0]], place.outer)
    first = tiles[buffers[0]].name
    name = fresh(f"{first}_write", taken)
    back = _write_back(
        place, update, tiles, part, taken, name=name, accumulate=accumulate
    )
    block = place.block
    if accumulate:
        fresh_state = dataclasses.replace(block, init=None)
        block = partial(fresh_state, _reduction_loops(place), place.ranges, taken)
    block = localized(place, block, tiles, part, taken, reading=False)
    allocs = tuple(ir.Alloc(tile) for tile in tiles.values())
    return place.with_block(block).beside(allocs, (back,)), (name, first)


def _written(place: Site, buffer: ir.Buffer) -> Region:
    if place.at is None:
        return whole(buffer)
    found = region(place.block, buffer, writes=True, ranges=place.inner_ranges)
    return need_known(found, f"{place.block.name!r} does not write {buffer.name!r}")


def _write_back(
    place: Site,
    update: ir.Store | ir.Reduce,
    tiles: Mapping[ir.Buffer, ir.Buffer],
    part: Region,
    taken: set[str],
    *,
    name: str,
    accumulate: bool,
) -> ir.Stmt:
    """The nest that writes the tile back."""
    plain = copy_over(
        next(iter(tiles)), part, place.outer_ranges, taken, update.indices
    )
    copy = plain.guarded(carried_guards(place, update.indices, plain))
    values = tuple(ir.Load(tile, copy.local) for tile in tiles.values())
    if not accumulate:
        stores = (ir.Store(b, copy.at, v) for b, v in zip(tiles, values, strict=True))
        return copy.nest(name, ir.seq(*stores))
    assert isinstance(update, ir.Reduce)
    folded = tuple(
        loop_axis(loop, "reduction", taken) for loop in _reduction_loops(place)
    )
    fold = ir.Reduce(update.reducer, tuple(tiles), copy.at, values)
    init = moved_init(place.block, update.indices, copy.at)
    return copy.nest(name, fold, folded, init)
