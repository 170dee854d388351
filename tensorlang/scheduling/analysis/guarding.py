"""Carry a block's guards over to the copy of the tile it works on."""

from __future__ import annotations

from itertools import takewhile

from tensorlang.ir.accesses import buffers_of
from tensorlang.ir.contents import free_vars
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.integers.polynomials import Poly
from tensorlang.ir.nodes import Block, Buffer, Expr, If, Load, Var, While
from tensorlang.ir.visit import walk
from tensorlang.scheduling.analysis import tree
from tensorlang.scheduling.analysis.coverage import bounds_of, guards_of
from tensorlang.scheduling.analysis.places import Site, loop_ranges, stored, whole_axes
from tensorlang.scheduling.analysis.regions import Region, region
from tensorlang.scheduling.analysis.tiles import Copy
from tensorlang.scheduling.steps.partials import starts_below


def plain_axis(index: Expr) -> Var | None:
    """The axis in an index `axis + constant`."""
    match linear(index).terms:
        case ((Var() as var, 1),):
            return var
    return None


def ends(place: Site, indices: tuple[Expr, ...], cond: Expr) -> list[tuple[int, Poly]]:
    """The tile dimensions that a condition of the block bounds, with the bounds."""
    inner = {loop.var for loop in place.inner}
    return [
        (d, bound.limit.shifted(linear(index).constant))
        for bound in bounds_of(place.block, cond)
        for d, index in enumerate(indices)
        if plain_axis(index) == bound.axis and not bound.limit.vars & inner
    ]


def carried_guards(place: Site, indices: tuple[Expr, ...], copy: Copy) -> list[Expr]:
    """The block's guards that also apply to the copy of what it accesses."""
    inner = {loop.var for loop in place.inner}
    homes = {axis.var: axis.value for axis in copy.axes}
    guards = []
    for cond in guards_of(place.block):
        if not free_vars(cond) & inner:
            guards.append(cond)
            continue
        for d, end in ends(place, indices, cond)[:1]:
            home = copy.at[d]
            guards.append((homes[home] if isinstance(home, Var) else home) < end.expr())
    return guards


def read_indices(
    block: Block, buffer: Buffer, *, everywhere: bool = False
) -> set[tuple[Expr, ...]]:
    """The distinct indices at which a block's body reads a buffer.

    Args:
        everywhere: Whether reads in its init and its condition count as well.
    """
    loads = (
        n for n in walk(block if everywhere else block.body) if isinstance(n, Load)
    )
    return {load.indices for load in loads if load.buffer == buffer}


def carries_all(place: Site, buffer: Buffer) -> bool:
    """Whether the copy of a block's operand copies only elements the block reads."""
    found = read_indices(place.block, buffer)
    if len(found) != 1:
        return False
    (indices,) = found
    axes = {axis.var for axis in place.block.axes}
    plain = all(
        plain_axis(index) is not None or not free_vars(index) & axes
        for index in indices
    )
    inner = {loop.var for loop in place.inner}
    return plain and all(
        ends(place, indices, cond)
        or not free_vars(cond) & inner
        or _somewhere_true(place, indices, cond)
        for cond in guards_of(place.block)
    )


def _somewhere_true(place: Site, indices: tuple[Expr, ...], cond: Expr) -> bool:
    """Whether a condition on axes outside the indices always holds for some values."""
    used = {plain_axis(index) for index in indices}
    return any(
        bound.axis not in used
        and starts_below(place.block, bound, place.outer, place.ranges)
        for bound in bounds_of(place.block, cond)
    )


def wholly_written(place: Site, buffer: Buffer, part: Region) -> bool:
    """Whether a region is fully written: a parameter, or by one block before."""
    if any(p.buffer == buffer and p.role != "out" for p in place.func.params):
        return True
    before = takewhile(
        lambda path: all(node is not place.child for node in path),
        tree.paths_to(place.func, Block),
    )
    return any(
        not any(isinstance(node, (If, While)) for node in path)
        and _writes_whole(path, buffer)
        and _by_now(path, place, buffer, part)
        for path in before
    )


def _by_now(path: tree.Path, place: Site, buffer: Buffer, part: Region) -> bool:
    """Whether a region is written within the same iteration of the shared loops."""
    loops = tree.enclosing_loops(path)
    shared = {loop.var for loop in loops if any(loop is x for x in place.path)}
    inner = tuple(loop for loop in loops if loop.var not in shared)
    block = tree.block_of(path)
    if not any(linear(axis.value).vars & shared for axis in block.axes):
        return True
    made = region(block, buffer, writes=True, ranges=loop_ranges(inner))
    return made is not None and all(
        room.is_constant and room.constant >= 0
        for own, read in zip(made, part, strict=True)
        for room in (read.low - own.low, own.high - read.high)
    )


def _writes_whole(path: tree.Path, buffer: Buffer) -> bool:
    block = tree.block_of(path)
    extents = {axis.var: linear(axis.extent) for axis in block.axes}
    sizes = [linear(extent) for extent in buffer.shape]
    for update in stored(block):
        held = buffers_of(update)[0]
        axes = [index for index in update.indices if isinstance(index, Var)]
        if held == buffer and len(set(axes)) == buffer.ndim:
            full = all(
                any(b.axis in axes and b.limit == extents[b.axis] for b in ends)
                for ends in (bounds_of(block, cond) for cond in guards_of(block))
            )
            given = [extents.get(axis) for axis in axes]
            return full and given == sizes and whole_axes(path, axes)
    return False
