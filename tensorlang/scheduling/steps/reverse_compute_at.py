"""`reverse_compute_at`: move a consumer's nest under a loop of its producer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tensorlang.errors import ScheduleError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import names, reads, writes
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.integers.polynomials import Poly, number
from tensorlang.ir.visit import substitute
from tensorlang.scheduling.analysis import tree
from tensorlang.scheduling.analysis.coverage import dense
from tensorlang.scheduling.analysis.guarding import read_indices
from tensorlang.scheduling.analysis.legality import legality
from tensorlang.scheduling.analysis.moving import (
    by_axes,
    goes_over_all,
    moved_nest,
    shared_loops,
)
from tensorlang.scheduling.analysis.places import (
    Site,
    extents,
    site,
    stored,
    whole_axes,
)
from tensorlang.scheduling.analysis.regions import (
    Range,
    Region,
    of_extent,
    point,
    region,
)
from tensorlang.scheduling.analysis.tiles import copy_over, loop_kind, need_known
from tensorlang.scheduling.primitives import primitive
from tensorlang.scheduling.steps.epilogue import (
    early_enough,
    left_for_good,
    named_before,
)
from tensorlang.scheduling.steps.partials import FOLDED


@legality("iterations write disjoint tiles for a moved consumer")
def separate_tiles(place: Site, buffer: ir.Buffer, part: Region) -> str | None:
    """Each element is completed in one iteration, whose region is known exactly."""
    block = place.block
    loops = (*place.outer, *place.inner)
    axes = {axis.var: linear(axis.value) for axis in block.axes}
    update = next((u for u in stored(block) if buffer in writes(u)), None)
    if update is None:
        return f"{tree.called(block)} updates {buffer.name!r} by atomics, in any order"
    named = [
        axes[i] if isinstance(i, ir.Var) and i in axes else None for i in update.indices
    ]
    values = [value for value in named if value is not None]
    used = frozenset().union(*(value.vars for value in values))
    idle = [x for x in place.outer if x.var not in used]
    folded = all(loop_kind(block, loop.var) in FOLDED for loop in idle)
    if (
        len(values) == buffer.ndim
        and dense(values, extents(loops))
        and dense(values, extents(place.inner))
        and _makes_all(place, update, buffer)
        and folded
        and all(_exact(place, *pair) for pair in zip(values, part, strict=True))
    ):
        return None
    return (
        f"the parts of {buffer.name!r} that block {block.name!r} writes in each "
        f"iteration of {place.at.var.name if place.at else 'it'!r} overlap, or are not "
        "known exactly; choose a loop further out"
    )


def _makes_all(place: Site, update: ir.Store | ir.Reduce, buffer: ir.Buffer) -> bool:
    """Whether the producer stores all elements of its buffer."""
    sizes = {axis.var: linear(axis.extent) for axis in place.block.axes}
    used = [index for index in update.indices if isinstance(index, ir.Var)]
    shape = [linear(extent) for extent in buffer.shape]
    return [sizes.get(v) for v in used] == shape and whole_axes(place.path, used)


def _exact(place: Site, value: Poly, part: Range) -> bool:
    """Whether a dimension of the region moves with the loops that drive it."""
    moving = {x.var for x in place.outer if linear(x.extent) != number(1)}
    return value.vars & moving <= part.low.vars


@legality("a moved consumer sees finished values")
def finished(user: tree.Path, place: Site, buffer: ir.Buffer) -> str | None:
    """The consumer follows, and no block in between writes its operands."""
    after = False
    for node in tree.acting(place.func.body):
        if node is user[-1]:
            if after:
                return None
            return (
                f"{tree.called(node)} stands before {place.block.name!r}, so what it "
                f"reads of {buffer.name!r} is from earlier; move one that stands behind"
            )
        if after and buffer in writes(node):
            return (
                f"{tree.called(node)} writes {buffer.name!r} after "
                f"{place.block.name!r}; move the consumer behind that one"
            )
        after = after or node is place.block
    return None


@legality("a moved consumer reads no partial result")
def no_partial_result(user: tree.Path, place: Site) -> str | None:
    """It shares no reduction loop with its producer, exposing partial sums."""
    for loop in tree.enclosing_loops(user):
        shared = any(loop is outer for outer in (*place.outer, *place.inner))
        folds = shared and loop_kind(place.block, loop.var) in FOLDED
        if folds and tree.constant(loop.extent) != 1:
            return (
                f"block {tree.block_of(user).name!r} reads in each iteration of "
                f"{loop.var.name!r} what block {place.block.name!r} has reduced so far"
            )
    return None


@primitive
def reverse_compute_at(func: ir.Function, block: str, loop: str) -> ir.Function:
    """Consume what a loop body has produced right there.

    Inside loops of a reduction, the consumer runs in their last iteration.

    Args:
        block: A block that reads, by its axes, what is written under the loop.
        loop: A loop around the producer.

    Raises:
        ScheduleError: the producer's tiles overlap, an access in between conflicts, or
            the consumer's axes do not follow the tile.

    Before:

        t = alloc(f32[10])
        for i_0 in range(3):
            for i_1 in range(4):
                with block("t", vi=spatial(10, i_0 * 4 + i_1),
                           where=i_0 * 4 + i_1 < 10):
                    t[vi] = x[vi] * 2.0
        for j in range(10):
            with block("y", vj=spatial(10, j)):
                y[vj] = t[vj] + 1.0

    After `reverse_compute_at("y", "i_0")`:

        t = alloc(f32[10])
        for i_0 in range(3):
            for i_1 in range(4):
                with block("t", vi=spatial(10, i_0 * 4 + i_1),
                           where=i_0 * 4 + i_1 < 10):
                    t[vi] = x[vi] * 2.0
            for j_1 in range(4):
                with block("y", vj_1=spatial(10, i_0 * 4 + j_1),
                           where=i_0 * 4 + j_1 < 10):
                    y[vj_1] = t[vj_1] + 1.0
    """
    user = tree.find_block(func, block)
    place, buffer = _producer(func, tree.block_of(user), loop)
    indices = _read_once(tree.block_of(user), buffer)
    by_axes(tree.block_of(user), indices)
    goes_over_all(user, indices)
    assert place.at is not None
    part = need_known(region(place.at.body, buffer, writes=True), "nothing is written")
    _in_every_tile(tree.block_of(user), indices, buffer, part)
    separate_tiles(place, buffer, part)
    axes = {axis.var for axis in tree.block_of(user).axes}
    part = tuple(
        own if index in axes else point(linear(index))
        for index, own in zip(indices, part, strict=True)
    )
    no_partial_result(user, place)
    _on_one_way(place, user)
    named_before(place.path, user)
    _results_alive(place, writes(tree.block_of(user)))
    left_for_good(user, place.path[: place.depth])
    finished(user, place, buffer)
    others = _companions(place, user, dict(zip(indices, part, strict=True)))
    early_enough(place.path, user, frozenset({buffer, *others}))
    taken = names(func)
    copy = copy_over(buffer, part, place.outer_ranges, taken, indices)
    kept = {v.var for v in copy.axes} & set(copy.at)
    copy = dataclasses.replace(
        copy, axes=tuple(axis for axis in copy.axes if axis.var in kept)
    ).guarded(
        [*_last(place, buffer), *(g for b, p in others.items() for g in _last(p, b))]
    )
    shared = shared_loops(user, place.path[: place.depth])
    nest = moved_nest(user, indices, copy, buffer, shared=shared, taken=taken)
    func = _hoisted(tree.without_nest(func, block), place, writes(tree.block_of(user)))
    return site(func, place.block.name, place.at.var.name).beside((), (nest,))


def _producer(func: ir.Function, user: ir.Block, loop: str) -> tuple[Site, ir.Buffer]:
    """The last block under the loop that writes an operand of the consumer."""
    name = loop.rpartition("/")[2]
    found = None
    for path in tree.paths_to(func, ir.Block):
        around = {outer.var.name for outer in tree.enclosing_loops(path)}
        shared = writes(path[-1]) & reads(user)
        if shared and name in around and tree.block_of(path).name != user.name:
            buffer = min(shared, key=lambda b: b.name)
            found = site(func, tree.block_of(path).name, loop), buffer
    if found is None:
        raise ScheduleError(
            f"no block under loop {loop!r} writes what block {user.name!r} reads"
        )
    return found


def _companions(
    place: Site, user: tree.Path, parts: Mapping[ir.Expr, Range]
) -> dict[ir.Buffer, Site]:
    """The consumer's other operands that the same iteration completes.

    Args:
        place: The producer seen from the loop.
        user: The consumer.
        parts: The range of each of the consumer's axes in an iteration.
    """
    found: dict[ir.Buffer, Site] = {}
    assert place.at is not None
    for path in tree.paths_to(place.func, ir.Block):
        if path[-1] is place.path[-1]:
            break
        if place.at not in path:
            continue
        maker = site(place.func, tree.block_of(path).name, place.at.var.name)
        for buffer in reads(user[-1]) & writes(maker.block):
            part = need_known(region(place.at.body, buffer, writes=True), "")
            if _same_tile(tree.block_of(user), buffer, part, parts):
                separate_tiles(maker, buffer, part)
                finished(place.path, maker, buffer)
                found[buffer] = maker
    return found


def _same_tile(
    user: ir.Block, buffer: ir.Buffer, part: Region, parts: Mapping[ir.Expr, Range]
) -> bool:
    """Whether the consumer reads of a buffer exactly what an iteration writes."""
    places = read_indices(user, buffer, everywhere=True)
    whole_parts = [of_extent(linear(extent)) for extent in buffer.shape]
    return len(places) == 1 and all(
        parts.get(index, everything) == own
        for index, own, everything in zip(
            next(iter(places)), part, whole_parts, strict=True
        )
    )


def _read_once(user: ir.Block, buffer: ir.Buffer) -> tuple[ir.Expr, ...]:
    found = read_indices(user, buffer, everywhere=True)
    folded = {axis.var for axis in user.axes if axis.kind != "spatial"}
    if len(found) == 1 and not folded & set(next(iter(found))):
        return next(iter(found))
    raise ScheduleError(
        f"block {user.name!r} reads {buffer.name!r} in {len(found)} places or along a "
        "reduction; a consumer moves with one element of it"
    )


def _in_every_tile(
    user: ir.Block, indices: tuple[ir.Expr, ...], buffer: ir.Buffer, part: Region
) -> None:
    """Raise a `ScheduleError` if the consumer reads one fixed element of many."""
    axes = {axis.var for axis in user.axes}
    for index, own, extent in zip(indices, part, buffer.shape, strict=True):
        if index not in axes and own != of_extent(linear(extent)):
            raise ScheduleError(
                f"block {user.name!r} reads {buffer.name!r} at {index!r} always, which "
                "is not in every tile; choose a loop further out"
            )


def _results_alive(place: Site, results: frozenset[ir.Buffer]) -> None:
    """Raise a `ScheduleError` if a result is allocated inside the loop."""
    for path in tree.paths_to(place.func, ir.Alloc):
        inside = any(node is place.child for node in path)
        if inside and tree.alloc_of(path).buffer in results:
            raise ScheduleError(
                f"{tree.alloc_of(path).buffer.name!r} is allocated further in than "
                f"loop {place.at.var.name if place.at else ''!r}; choose an inner loop"
            )


def _on_one_way(place: Site, user: tree.Path) -> None:
    """Raise a `ScheduleError` if one of them is under a condition of its own."""
    for mine, theirs in ((place.path, user), (user, place.path)):
        for node in tree.conditions_apart(mine, theirs):
            raise ScheduleError(
                f"block {tree.block_of(mine).name!r} runs under {node.cond!r} only, "
                f"and block {tree.block_of(theirs).name!r} does not"
            )


def _last(place: Site, buffer: ir.Buffer) -> list[ir.Expr]:
    """The conditions that reduction loops around the tile are at their last value."""
    used = _driving(place, buffer)
    return [
        x.var.equal(linear(x.extent).shifted(-1).expr())
        for x in place.outer
        if x.var not in used and loop_kind(place.block, x.var) in FOLDED
    ]


def _driving(place: Site, buffer: ir.Buffer) -> frozenset[ir.Var]:
    """The loops that drive the producer's store indices."""
    (update, *_) = (u for u in stored(place.block) if buffer in writes(u))
    axes = {axis.var: axis.value for axis in place.block.axes}
    return frozenset().union(
        *(linear(substitute(index, axes)).vars for index in update.indices)
    )


def _hoisted(
    func: ir.Function, place: Site, results: frozenset[ir.Buffer]
) -> ir.Function:
    """The function with the allocations of `results` in scope at the producer."""
    for buffer in sorted(results, key=lambda b: b.name):
        held = [
            p
            for p in tree.paths_to(func, ir.Alloc)
            if tree.alloc_of(p).buffer == buffer
        ]
        maker = tree.find_block(func, place.block.name)
        if not held:
            continue
        level = len(held[0]) - 1
        around = held[0][level - 1]
        if not isinstance(around, ir.Seq) or around not in maker:
            raise ScheduleError(f"{buffer.name!r} is not alive at {place.block.name!r}")
        child = maker[level]
        assert isinstance(child, ir.Stmt)
        places = [id(stmt) for stmt in around.stmts]
        if places.index(id(child)) < places.index(id(held[0][-1])):
            func = tree.replace(held[0], None)
            maker = tree.find_block(func, place.block.name)
            func = tree.replace(_up_to(maker, child), ir.seq(ir.Alloc(buffer), child))
    return func


def _up_to(path: tree.Path, node: ir.Stmt) -> tree.Path:
    return path[: next(i for i, step in enumerate(path) if step is node) + 1]
