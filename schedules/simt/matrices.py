"""Arbitrary contractions as matrix products: rows, columns, steps, and batches.

    sums[b, o, i, j] += x[b, c, i + u, j + v] * w[o, c, u, v]

    for p in range(n * 3136):                                # b, i, j
        for o in range(64):
            for r in range(576):                             # c, u, v
                reduce(sum, sums[p, o], x_sums[p, r] * w_sums[o, r])

The matrices gathered from the operands are copies that a schedule computes where it
stages them, so they are never materialized; ragged sizes are zero-padded there, and
results of the padding are not stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.ir.contents import allocations, blocks, reads
from tensorlang.ir.nodes import For, Load, Store
from tensorlang.ir.visit import walk
from tensorlang.schedules.generic import stage_named, stage_names
from tensorlang.schedules.simt.edges import fuse_padding
from tensorlang.schedules.stages import (
    INJECTIVE,
    Stage,
    contiguous_loop,
    extent_of,
    kind_of,
    trips,
    variables,
)
from tensorlang.schedules.tiling import fused
from tensorlang.scheduling import Schedule
from tensorlang.scheduling.analysis.tree import block_of, find_block

_GROUPS: Final = ("batch", "row", "column")


@frozen
class Sides:
    """The loops of a contraction, grouped by the operands they index."""

    # loops over batches, rows and columns of the result, slowest first
    groups: dict[str, tuple[For, ...]]
    folded: tuple[For, ...]  # loops over the steps of the reduction
    loads: tuple[Load, Load]  # operands of the rows and of the columns

    def extent(self, group: str) -> int | None:
        """The size of a group, if known."""
        return trips(self.folded if group == "step" else self.groups[group])

    def tiles(self, sizes: Sequence[int]) -> int | None:
        """The number of tiles of so many rows and columns, of all batches, if known."""
        extents = [self.extent(group) for group in ("row", "column")]
        counts = [self.extent("batch")]
        counts += [n and -(-n // size) for n, size in zip(extents, sizes, strict=True)]
        known = [count for count in counts if count is not None]
        return prod(known) if len(known) == len(counts) else None

    @property
    def at_least(self) -> int:
        """A lower bound for the number of steps; dynamic loops count as one."""
        return prod(extent_of(loop) or 1 for loop in self.folded)


@frozen
class Matrices:
    """A contraction in normal form."""

    block: str  # block of the products
    loops: dict[str, str]  # its loops: `batch` (if any), `row`, `column`, `step`
    # blocks that gather the operands of rows and columns, with the buffers they make,
    # indexed by batch, row or column, and step
    copies: tuple[tuple[str, str], tuple[str, str]]
    result: str  # temporary of the sums
    order: tuple[str, ...]  # order of batch, row and column in its dimensions
    writer: str  # block that reads the sums, if it can be fused with their producer


def sides_of(stage: Stage) -> Sides:
    """Group the loops of a contraction of two operands.

    Raises:
        ScheduleError: it has another form.
    """
    loads, update = stage.loads, stage.update
    buffers = {load.buffer for load in loads}
    if len(loads) != 2 or len(buffers) != 2 or isinstance(update, Store):
        raise ScheduleError(f"{stage.name} is not a product of two operands")
    used = [variables(load) for load in loads]
    spatial = stage.driven("spatial")
    if not spatial or list(update.indices) != [stage.axis(x) for x in spatial]:
        raise ScheduleError(f"{stage.name} does not store by its axes")
    last = next((x for x in reversed(spatial) if extent_of(x) != 1), spatial[-1])
    first, second = used if stage.axis(last) in used[1] else used[::-1]
    pair = loads if stage.axis(last) in used[1] else loads[::-1]
    groups: dict[str, list[For]] = {group: [] for group in _GROUPS}
    for loop in spatial:
        in_rows, in_columns = (stage.axis(loop) in names for names in (first, second))
        alone = in_rows != in_columns and extent_of(loop) != 1
        side = "row" if in_rows else "column"
        groups[side if alone else "batch"].append(loop)
    if not groups["row"] or not groups["column"]:
        raise ScheduleError(f"{stage.name} reuses no element of an operand")
    folded = stage.driven("reduction")
    steps = {stage.axis(loop) for loop in folded}
    if any(not steps <= names for names in (first, second)):
        raise ScheduleError(f"{stage.name} reduces along one operand only")
    for group, load in zip(("row", "column"), pair, strict=True):
        groups[group].sort(key=lambda loop: stage.axis(loop) == load.indices[-1])
    made = {group: tuple(found) for group, found in groups.items()}
    return Sides(made, folded, (pair[0], pair[1]))


def as_matrices(s: Schedule, stage: Stage, sides: Sides) -> Matrices:
    """Bring a contraction into normal form; ScheduleError if a step is impossible."""
    update = stage.update
    writer = writer_of(s, stage)
    result = stage.output.name
    if not writer:
        writer, result = s.cache_write(stage.name, result, "global")
    groups = [tuple(x.var.name for x in sides.groups[name]) for name in _GROUPS]
    places = [
        tuple(update.indices.index(stage.axis(x)) for x in sides.groups[name])
        for name in _GROUPS
    ]
    steps = _steps(stage, sides)
    s.reorder(*(name for group in (*groups, steps) for name in group))
    loops = {
        name: fused(s, group)
        for name, group in zip((*_GROUPS, "step"), (*groups, steps), strict=True)
        if group
    }
    axes = [[stage.axis(x).name for x in sides.groups[name]] for name in _GROUPS]
    around = {x.var.name: stage.axis(x).name for x in sides.folded}
    for group in (*axes, [around[name] for name in steps]):
        if len(group) > 1:
            s.fuse_axes(stage.name, group)
    _same_for_writer(s, writer, result, places)
    _fuse_places(s, result, places)
    names = [load.buffer.name for load in sides.loads]
    copies = [s.reindex(stage.name, name) for name in names]
    _batches_first(s, stage.name, loops, copies)
    fuse_padding(s, [copy for copy, _ in copies])
    found = [name for name, at in zip(_GROUPS, places, strict=True) if at]
    first = dict(zip(_GROUPS, places, strict=True))
    lying = sorted(found, key=lambda name: first[name][0])
    if lying != found:  # the sums get the result's memory order
        s.permute_dims(result, [lying.index(name) for name in found])
    pair = copies[0], copies[1]
    return Matrices(stage.name, loops, pair, result, tuple(found), writer)


def pad(s: Schedule, matrices: Matrices, **tile: int) -> None:
    """Zero-pad `row`, `column` and `step` to multiples of a tile's sizes."""
    found = stage_named(s, matrices.block)
    assert found is not None
    by_loop = {matrices.loops[group]: size for group, size in tile.items()}
    sizes = {
        loop.var: (extent_of(loop), by_loop.get(loop.var.name, 1))
        for loop in found.loops
    }
    multiples = [sizes.get(axis.value, (1, 1)) for axis in found.block.axes]  # type: ignore[call-overload]
    if any(m > 1 and (size is None or size % m) for size, m in multiples):
        s.pad(matrices.block, [m for _, m in multiples])


def _batches_first(
    s: Schedule, block: str, loops: Mapping[str, str], copies: Sequence[tuple[str, str]]
) -> None:
    """Order the loops of copies by batches, then rows or columns, then steps.

    They follow the axes of the block; a batch may be one of the inner ones, as groups
    of channels are.
    """
    product = block_of(find_block(s.function, block))
    driving = [str(getattr(axis.value, "name", "")) for axis in product.axes]
    for (copy, made), side in zip(copies, ("row", "column"), strict=True):
        wanted = [group for group in ("batch", side, "step") if group in loops]
        if any(loops[group] not in driving for group in wanted):
            raise ScheduleError(
                f"the axes of {block} are not driven by loops of their own"
            )
        lying = sorted(wanted, key=lambda group: driving.index(loops[group]))
        if lying != wanted:
            order = [lying.index(group) for group in wanted]
            around = s.loops(copy)
            s.permute_dims(made, order)
            s.reorder(*(around[place] for place in order))


def _steps(stage: Stage, sides: Sides) -> tuple[str, ...]:
    """The reduction loops, ordered so that operands are contiguous along the last.

    In channels-last layout, this puts the channels last.
    """
    last = contiguous_loop(stage)
    plain = {load.indices[-1] for load in sides.loads}
    moved = [x for x in sides.folded if x is last and stage.axis(x) in plain]
    return tuple(
        x.var.name for x in (*(x for x in sides.folded if x not in moved), *moved)
    )


def writer_of(s: Schedule, stage: Stage) -> str:
    """The only block that reads a temporary result, elementwise; empty if none."""
    if stage.output not in set(allocations(s.function)):
        return ""
    users = [b for b in blocks(s.function) if stage.output in reads(b)]
    users = [b for b in users if b.name != stage.name]
    found = stage_named(s, users[0].name) if len(users) == 1 else None
    if found is None or kind_of(found) != INJECTIVE or found.name not in stage_names(s):
        return ""
    axes = tuple(found.axis(loop) for loop in found.loops)
    places = {
        n.indices
        for n in walk(found.block.body)
        if isinstance(n, Load) and n.buffer == stage.output
    }
    return found.name if places == {axes} else ""


def _same_for_writer(
    s: Schedule, writer: str, result: str, places: Sequence[Sequence[int]]
) -> None:
    """Fuse the same axes of the block that reads the sums."""
    found = stage_named(s, writer)
    if found is None:
        raise ScheduleError(f"{writer} does not read {result} element by element")
    at = next(
        n.indices
        for n in walk(found.block.body)
        if isinstance(n, Load) and n.buffer.name == result
    )
    by_axis = {found.axis(loop): loop.var.name for loop in found.loops}
    names = {axis.var: axis.var.name for axis in found.block.axes}
    groups = [[at[place] for place in group] for group in places]
    loops = [[by_axis[v] for v in group if v in by_axis] for group in groups]
    order = [name for group in loops for name in group]
    if len(order) > 1:
        s.reorder(*order)
    for group, around in zip(groups, loops, strict=True):
        if around:
            fused(s, around)
        if len(group) > 1:
            s.fuse_axes(writer, [names[v] for v in group])  # type: ignore[index]


def _fuse_places(s: Schedule, result: str, places: Iterable[Sequence[int]]) -> None:
    """Fuse the corresponding dimensions of the sums."""
    groups = list(places)
    left = sorted(place for group in groups for place in group)
    for group in groups:
        if len(group) > 1:
            s.fuse_dims(result, [left.index(place) for place in group])
            left = [place for place in left if place not in group[1:]]
