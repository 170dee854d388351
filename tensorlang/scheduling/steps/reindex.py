"""`reindex`: access a buffer through a copy indexed by the block's axes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tensorlang.errors import ScheduleError
from tensorlang.ir import nodes as ir
from tensorlang.ir.accesses import buffers_of
from tensorlang.ir.contents import binders, free_vars, names, reads, writes
from tensorlang.ir.integers.digits import fixed
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.visit import fresh, substitute, walk
from tensorlang.scheduling.analysis import tree
from tensorlang.scheduling.analysis.coverage import bounds_of, guards_of
from tensorlang.scheduling.analysis.guarding import read_indices
from tensorlang.scheduling.analysis.legality import legality
from tensorlang.scheduling.analysis.places import (
    Site,
    need_alive,
    site,
    stored,
    whole_axes,
)
from tensorlang.scheduling.analysis.regions import whole
from tensorlang.scheduling.analysis.tiles import copy_over, retarget
from tensorlang.scheduling.primitives import primitive
from tensorlang.scheduling.steps.cache import unchanged_while_read
from tensorlang.scheduling.steps.cache_write import own_start, sole_user


@legality("a reindexed block covers all of its axes")
def full_axes(path: tree.Path) -> str | None:
    """Its loops cover all axes, and no other condition guards it."""
    block = tree.block_of(path)
    if not whole_axes(path, {axis.var for axis in block.axes}):
        return (
            f"block {block.name!r} does not run for all values of its axes; the copy "
            "would go over elements it does not touch"
        )
    extents = {axis.var: linear(axis.extent) for axis in block.axes}
    for cond in guards_of(block):
        if not any(b.limit == extents[b.axis] for b in bounds_of(block, cond)):
            return (
                f"block {block.name!r} runs only where {cond!r}; the copy would go "
                "over elements it does not touch"
            )
    return None


@legality("a scattered result writes each element once")
def scattered_once(block: ir.Block, indices: tuple[ir.Expr, ...]) -> str | None:
    """No two values of the axes used in the indices map to one element."""
    sizes = {axis.var: tree.constant(axis.extent) for axis in block.axes}
    agreed = fixed([(index, index) for index in indices], sizes)
    if agreed is not None and agreed.issuperset(_used_axes(block, indices)):
        return None
    shown = ", ".join(map(repr, indices))
    return (
        f"block {block.name!r} may store at [{shown}] several times, and the last of "
        "them would be another one"
    )


@primitive
def reindex(
    func: ir.Function, block: str, buffer: str
) -> tuple[ir.Function, tuple[str, str]]:
    """Replace `buffer` in a block by a copy indexed exactly by the block's axes.

    Operands are gathered before the block's nest (`im2col`, for a convolution); results
    are scattered after it.

    Args:
        buffer: A buffer that it reads, or writes, at one place.

    Returns:
        The function, and the names of the copying block and of the new buffer.

    Raises:
        ScheduleError: there are several places, or the nest changes the buffer.

    Before:

        for i in range(8):
            for k in range(3):
                with block("y", vi=spatial(8, i), vk=reduction(3, k)):
                    reduce(sum, y[vi], x[vi + vk] * w[vk])

    After `reindex("y", "x")`:

        x_y = alloc(f32[8, 3])
        for i_1 in range(8):
            for k_1 in range(3):
                with block("x_y_copy", vi_1=spatial(8, i_1), vk_1=spatial(3, k_1)):
                    x_y[vi_1, vk_1] = x[vi_1 + vk_1]
        for i in range(8):
            for k in range(3):
                with block("y", vi=spatial(8, i), vk=reduction(3, k)):
                    reduce(sum, y[vi], x_y[vi, vk] * w[vk])
    """
    place, old = site(func, block, None), tree.find_buffer(func, buffer)
    need_alive(place, old)
    full_axes(place.path)
    if old in writes(place.block.body):
        return _scattered(place, old)
    if old not in reads(place.block.body):
        raise ScheduleError(f"block {block!r} does not use {buffer!r}")
    return _gathered(place, old)


def _gathered(place: Site, old: ir.Buffer) -> tuple[ir.Function, tuple[str, str]]:
    found = read_indices(place.block, old)
    if len(found) != 1:
        raise ScheduleError(
            f"block {place.block.name!r} reads {old.name!r} at {len(found)} places; "
            "reindex needs one"
        )
    indices = next(iter(found))
    unchanged_while_read(place, old)
    new = _shaped(place, old, indices)
    taken = names(place.func) | {new.name}
    axes = _used_axes(place.block, indices)
    copy = copy_over(new, whole(new), {}, taken, axes)
    homes = dict(zip(axes, copy.at, strict=True))
    name = fresh(f"{new.name}_copy", taken)
    load = ir.Load(old, tuple(substitute(index, homes) for index in indices))
    fill = copy.nest(name, ir.Store(new, copy.at, load))
    block = _redirected(place.block, {old: new}, tuple(homes), reading=True)
    return place.with_block(block).beside((ir.Alloc(new), fill)), (name, new.name)


def _scattered(place: Site, old: ir.Buffer) -> tuple[ir.Function, tuple[str, str]]:
    update = _update_of(place.block, old)
    buffers = buffers_of(update)
    for buffer in buffers:
        need_alive(place, buffer)
    own_start(place, update)
    sole_user(place, buffers)
    scattered_once(place.block, update.indices)
    new = {buffer: _shaped(place, buffer, update.indices) for buffer in buffers}
    first = new[buffers[0]]
    taken = names(place.func) | {buffer.name for buffer in new.values()}
    axes = _used_axes(place.block, update.indices)
    copy = copy_over(first, whole(first), {}, taken, axes)
    homes = dict(zip(axes, copy.at, strict=True))
    name = fresh(f"{first.name}_write", taken)
    indices = tuple(substitute(index, homes) for index in update.indices)
    stores = (ir.Store(b, indices, ir.Load(t, copy.at)) for b, t in new.items())
    block = _redirected(place.block, new, tuple(homes), reading=False)
    allocs = tuple(ir.Alloc(buffer) for buffer in new.values())
    back = copy.nest(name, ir.seq(*stores))
    return place.with_block(block).beside(allocs, (back,)), (name, first.name)


def _update_of(block: ir.Block, buffer: ir.Buffer) -> ir.Store | ir.Reduce:
    found = [update for update in stored(block) if buffer in writes(update)]
    if len(found) == 1 and buffer not in reads_besides(block, found[0]):
        return found[0]
    raise ScheduleError(
        f"block {block.name!r} must write {buffer.name!r} at one place, and not read "
        "it, to be reindexed"
    )


def reads_besides(
    block: ir.Block, update: ir.Store | ir.Reduce
) -> frozenset[ir.Buffer]:
    """The buffers a block loads, excluding the state of its own reduction."""
    loads = frozenset(n.buffer for n in walk(block.body) if isinstance(n, ir.Load))
    return loads | (frozenset() if isinstance(update, ir.Reduce) else reads(update))


def _used_axes(block: ir.Block, indices: tuple[ir.Expr, ...]) -> tuple[ir.Var, ...]:
    """The axes that occur in indices, in the block's order."""
    if any(index.dtype.lanes > 1 for index in indices):
        raise ScheduleError(
            f"block {block.name!r} works on vectors; reindex before tensorize"
        )
    used = frozenset().union(*(free_vars(index) for index in indices))
    if used & set(binders(block.body)) or any(
        isinstance(node, ir.Load) for index in indices for node in walk(index)
    ):
        shown = ", ".join(map(repr, indices))
        raise ScheduleError(
            f"[{shown}] in block {block.name!r} depends on data, not on axes alone"
        )
    return tuple(axis.var for axis in block.axes if axis.var in used)


def _shaped(place: Site, old: ir.Buffer, indices: tuple[ir.Expr, ...]) -> ir.Buffer:
    """A buffer with one dimension per axis in the indices."""
    extents = {axis.var: axis.extent for axis in place.block.axes}
    shape = tuple(extents[var] for var in _used_axes(place.block, indices))
    (name,) = tree.new_names(place.func, f"{old.name}_{place.block.name}")
    return ir.Buffer(name, old.dtype, shape)


def _redirected(
    block: ir.Block,
    new: Mapping[ir.Buffer, ir.Buffer],
    axes: tuple[ir.Var, ...],
    *,
    reading: bool,
) -> ir.Block:
    """The block with its accesses redirected to the new buffers."""
    if not reading:
        return retarget(block, new, lambda _: axes, reads=False, writes=True)
    # an init keeps reading the old buffer
    body = retarget(block.body, new, lambda _: axes, reads=True, writes=False)
    return dataclasses.replace(block, body=body)
