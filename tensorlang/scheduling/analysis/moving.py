"""Rebuild a block's nest at another place, over a region of a buffer."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from tensorlang.errors import ScheduleError
from tensorlang.ir.contents import binders, free_vars
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.nodes import Axis, Block, Buffer, Expr, For, Stmt, Var
from tensorlang.ir.simplification.conditions import conjunction
from tensorlang.ir.visit import substitute
from tensorlang.scheduling.analysis.coverage import bounds_of, guards_of
from tensorlang.scheduling.analysis.legality import legality
from tensorlang.scheduling.analysis.places import whole_axes
from tensorlang.scheduling.analysis.tiles import Copy
from tensorlang.scheduling.analysis.tree import Path, block_of, enclosing_loops
from tensorlang.scheduling.steps.reduction import renest


def by_axes(block: Block, indices: Sequence[Expr]) -> None:
    """Raise a `ScheduleError` unless the indices are distinct axes, or constants."""
    axes, inside = {axis.var for axis in block.axes}, set(binders(block))
    used = [index for index in indices if index in axes]
    fixed = all(index in axes or not free_vars(index) & inside for index in indices)
    if not fixed or len(set(used)) < len(used):
        shown = ", ".join(map(repr, indices))
        raise ScheduleError(
            f"block {block.name!r} has the indices [{shown}]: to be moved it must use "
            "its axes themselves as indices; reindex it first"
        )


@legality("a moved block covers all of its axes")
def goes_over_all(path: Path, indices: Sequence[Expr]) -> str | None:
    """Its loops cover the full range of the axes that will follow the new place."""
    block = block_of(path)
    named = {axis.var for axis in block.axes if axis.var in indices}
    if whole_axes(path, named):
        return None
    shown = ", ".join(sorted(var.name for var in named))
    return (
        f"the loops around block {block.name!r} do not run for all values of {shown}; "
        "move it before it is partitioned"
    )


def shared_loops(a: Path, b: Path) -> frozenset[Var]:
    """The variables of the loops that two paths have in common."""
    loops = (x for x, y in zip(a, b, strict=False) if x is y and isinstance(x, For))
    return frozenset(loop.var for loop in loops)


def moved_nest(
    path: Path,
    indices: Sequence[Expr],
    copy: Copy,
    buffer: Buffer,
    *,
    shared: Collection[Var],
    taken: set[str],
) -> Stmt:
    """The block in new loops over the part of `buffer` that `copy` visits.

    Axes used as indices follow the copy; all others keep loops of their own, or are
    driven by loops shared by the old and the new place.

    Raises:
        ScheduleError: an axis shares its loops with the indices, or a guard cannot be
            carried over.
    """
    block = block_of(path)
    homes = {
        own: home
        for own, home in zip(indices, copy.at, strict=True)
        if isinstance(own, Var) and isinstance(home, Var)
    }
    values = {axis.var: axis.value for axis in copy.axes}
    others = _others(block, homes.keys())
    loops = [
        loop
        for loop in _own_loops(path, block, others, homes.keys())
        if loop.var not in shared
    ]
    where = [] if copy.where is None else [copy.where]
    gone = {x.var for x in enclosing_loops(path)} - {x.var for x in loops} - {*shared}
    where += _carried(block, indices, copy, buffer, gone)
    made = dataclasses.replace(
        block,
        axes=(*(a for a in copy.axes if a.var in values), *others),
        body=substitute(block.body, homes),
        where=conjunction(where),
        init=None if block.init is None else substitute(block.init, homes),
    )
    nest = renest(tuple(loops), made, taken)
    for var, extent in reversed(copy.loops):
        nest = For(var, extent, "serial", nest)
    return nest


def _others(block: Block, named: object) -> list[Axis]:
    """The axes outside the indices that the block uses, or reduces."""
    used = free_vars(block.body)
    if block.init is not None:
        used |= free_vars(block.init)
    return [
        _without_idle_loops(axis)
        for axis in block.axes
        if axis.var not in named  # type: ignore[operator]
        and (axis.var in used or axis.kind != "spatial")
    ]


def _without_idle_loops(axis: Axis) -> Axis:
    """An axis whose value contains no irrelevant loops, as `i % 1` does."""
    form = linear(axis.value)
    if form.vars == free_vars(axis.value):
        return axis
    return dataclasses.replace(axis, value=form.expr())


def _own_loops(
    path: Path, block: Block, others: Sequence[Axis], named: object
) -> list[For]:
    taken = frozenset().union(
        *(linear(a.value).vars for a in block.axes if a.var in named)  # type: ignore[operator]
    )
    needed = frozenset().union(*(linear(axis.value).vars for axis in others))
    loops = [loop for loop in enclosing_loops(path) if loop.var in needed]
    for loop in loops:
        if loop.var in taken:
            raise ScheduleError(
                f"loop {loop.var.name!r} drives axes of block {block.name!r} that move "
                "and axes that stay; move the block before splitting or caching"
            )
    return loops


def _carried(
    block: Block, indices: Sequence[Expr], copy: Copy, buffer: Buffer, gone: set[Var]
) -> list[Expr]:
    """The guards of the block, and bounds of its axes, in terms of the new loops."""
    values = {axis.var: axis.value for axis in copy.axes}
    homes = {
        own: values.get(home, home)
        for own, home in zip(indices, copy.at, strict=True)
        if isinstance(own, Var) and isinstance(home, Var)
    }
    sizes = dict(zip(indices, buffer.shape, strict=True))
    guards = [
        homes[axis.var] < axis.extent
        for axis in block.axes
        if axis.var in homes and linear(sizes[axis.var]) != linear(axis.extent)
    ]
    ends = {axis.var: linear(axis.extent) for axis in block.axes}
    inner = {var for axis in block.axes for var in linear(axis.value).vars}
    for cond in guards_of(block):
        if not free_vars(cond) & gone:
            guards.append(cond)
            continue
        found = [b for b in bounds_of(block, cond) if b.axis in homes]
        fixed = [b for b in found if not b.limit.vars & inner]
        if not fixed:
            raise ScheduleError(
                f"block {block.name!r} is guarded by {cond!r}, which cannot move; only "
                "ends of its axes can"
            )
        bound = fixed[0]
        if bound.limit != ends[bound.axis]:
            guards.append(homes[bound.axis] < bound.limit.expr())
    return guards
