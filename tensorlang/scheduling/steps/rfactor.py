"""`rfactor`: compute partial results of a reduction in a buffer of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import names
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.visit import fresh, transform_statements
from tensorlang.scheduling.analysis import tree
from tensorlang.scheduling.analysis.extents import known_without
from tensorlang.scheduling.analysis.legality import legality
from tensorlang.scheduling.analysis.places import loop_ranges, stored
from tensorlang.scheduling.analysis.regions import relax
from tensorlang.scheduling.analysis.tiles import loop_kind
from tensorlang.scheduling.primitives import primitive
from tensorlang.scheduling.steps.partials import (
    FOLDED,
    loop_axis,
    none_empty,
    only_reduces,
    partial,
)
from tensorlang.scheduling.steps.reduction import (
    guarded_by_ends,
    position,
    renest,
    spatial_part,
    updates_of,
)


@legality("partial results are combined in a valid order")
def order_kept(
    block: ir.Block, update: ir.Reduce, loop: ir.For, loops: Sequence[ir.For]
) -> str | None:
    """A non-commutative reducer is factored by its outermost split only."""
    ordered = any(axis.kind == "ordered" for axis in block.axes)
    if update.reducer.commutative and not ordered:
        return None
    axes = [axis for axis in block.axes if axis.kind in FOLDED]
    if len(axes) == 1 and _leads(axes[0], loop, loops):
        return None
    return (
        f"{update.reducer.name!r} reduces in order in block {block.name!r}, and loop "
        f"{loop.var.name!r} is not the outermost split of its axis; factor that one"
    )


def _leads(axis: ir.Axis, loop: ir.For, loops: Sequence[ir.For]) -> bool:
    """Whether each value of the loop is one contiguous piece of the axis, in order."""
    form = linear(axis.value)
    step = form.at(loop.var)
    rest = form.without(loop.var)
    ranges = loop_ranges(tuple(loops))
    found = relax(rest.expr(), ranges)
    if found is None or loop.var in rest.vars:
        return False
    inner = found.low.is_constant and found.high.is_constant
    return inner and found.low.constant >= 0 and found.high.constant < step


@legality("a factored reduction has its nest to itself")
def own_nest(path: tree.Path, top: int) -> str | None:
    """The loops of the reduction contain only the block."""
    block = tree.block_of(path)
    for outer in tree.enclosing_loops(path[: top + 1]):
        if loop_kind(block, outer.var) in FOLDED:
            return (
                f"loop {outer.var.name!r} reduces block {block.name!r} and holds other "
                "statements, too; the partial results cannot be combined after it"
            )
    return None


@primitive
def rfactor(
    func: ir.Function, block: str, loop: str, axis: int = 0
) -> tuple[ir.Function, tuple[str, str]]:
    """Reduce to one partial result per value of `loop`, then reduce these.

    The loop then drives a spatial axis: it may be parallelized or vectorized.

    Args:
        block: The reduction. Any reducer is allowed, tuple states too; a
            non-commutative one only by the outermost split of its axis.
        loop: A loop of the reduction.
        axis: The dimension of the new buffers that indexes the partial results.

    Returns:
        The function, and the names of the block of the partial results and of the first
        new buffer. The block that combines them keeps the name `block`.

    Raises:
        ScheduleError: the loop drives a spatial axis, other statements stand in the
            nest, a partial result would be empty, or the order would change.

    Before:

        for i in range(4):
            for k_0 in range(8):
                for k_1 in range(16):
                    with block("y", vi=spatial(4, i),
                               vk=reduction(128, k_0 * 16 + k_1)):
                        reduce(sum, y[vi], x[vi, vk])

    After `rfactor("y", "k_0")`:

        y_rf = alloc(f32[8, 4])
        for i in range(4):
            for k_0 in range(8):
                for k_1 in range(16):
                    with block("y_rf_part", vi=spatial(4, i), vk_in=reduction(16, k_1),
                               vk_0=spatial(8, k_0)):
                        reduce(sum, y_rf[vk_0, vi], x[vi, vk_0 * 16 + vk_in])
        for i_1 in range(4):
            for k_0_1 in range(8):
                with block("y", vi=spatial(4, i_1), vk_0_1=reduction(8, k_0_1)):
                    reduce(sum, y[vi], y_rf[vk_0_1, vi])
    """
    path = tree.find_block(func, block)
    old = tree.block_of(path)
    update = _one_update(old)
    target = path[position(path, loop)]
    assert isinstance(target, ir.For)
    loops = tree.enclosing_loops(path)
    top = len(tree.nest_of(path)) - 1
    only_reduces(old, target)
    order_kept(old, update, target, loops)
    own_nest(path, top)
    guarded_by_ends(path)
    none_empty(old, (target,), loop_ranges(loops))
    known_without([target], [n for n in path[top:] if isinstance(n, ir.For)])
    taken = names(func)
    name = fresh(f"{block}_rf", taken)
    parts = _part_buffers(update, name, target, axis, taken)
    factor = _Factor(path, top, update, target, axis, parts)
    part = factor.parts_block(fresh(f"{name}_part", taken), taken)
    nest = tree.find_block(tree.replace(path, part), part.name)[top]
    assert isinstance(nest, ir.Stmt)
    allocs = [ir.Alloc(buffer) for buffer in parts]
    made = ir.seq(*allocs, nest, factor.final(taken))
    return tree.replace(path[: top + 1], made), (part.name, name)


def _one_update(block: ir.Block) -> ir.Reduce:
    updates = updates_of(block)
    if len(updates) == len(stored(block)) == 1:
        return updates[0]
    raise ScheduleError(
        f"block {block.name!r} reduces {len(updates)} states and updates "
        f"{len(stored(block))}; rfactor takes one alone"
    )


def _part_buffers(
    update: ir.Reduce, name: str, loop: ir.For, axis: int, taken: set[str]
) -> tuple[ir.Buffer, ...]:
    first = update.buffers[0]
    if not 0 <= axis <= first.ndim:
        raise ScheduleError(
            f"rfactor puts the partial results of {first.name!r} at dimension {axis}; "
            f"it can be 0 to {first.ndim}"
        )
    made = []
    for buffer in update.buffers:
        own = name if buffer is first else fresh(f"{buffer.name}_rf", taken)
        shape = _with(buffer.shape, axis, loop.extent)
        made.append(ir.Buffer(own, buffer.dtype, shape))
    return tuple(made)


def _with(items: tuple[ir.Expr, ...], axis: int, new: ir.Expr) -> tuple[ir.Expr, ...]:
    return (*items[:axis], new, *items[axis:])


@frozen
class _Factor:
    """One use of `rfactor`: the block at `path`, alone from `path[top]` on."""

    path: tree.Path
    top: int
    update: ir.Reduce
    loop: ir.For
    axis: int
    parts: tuple[ir.Buffer, ...]

    def parts_block(self, name: str, taken: set[str]) -> ir.Block:
        """The block that computes the partial results."""
        old = dataclasses.replace(tree.block_of(self.path), name=name, init=None)
        ranges = loop_ranges(tree.enclosing_loops(self.path))
        block = partial(old, (self.loop,), ranges, taken)
        pin = next(a.var for a in reversed(block.axes) if a.value == self.loop.var)

        def change(stmt: ir.Stmt) -> ir.Stmt:
            if not isinstance(stmt, ir.Reduce):
                return stmt
            indices = _with(stmt.indices, self.axis, pin)
            return dataclasses.replace(stmt, buffers=self.parts, indices=indices)

        body = transform_statements(block.body, change)
        return dataclasses.replace(block, body=body)

    def final(self, taken: set[str]) -> ir.Stmt:
        """The nest that combines the partial results."""
        pin = loop_axis(self.loop, "reduction", taken)
        indices = _with(self.update.indices, self.axis, pin.var)
        values = tuple(ir.Load(part, indices) for part in self.parts)
        block = spatial_part(self.path)
        made = dataclasses.replace(
            block,
            axes=(*block.axes, pin),
            body=dataclasses.replace(self.update, values=values),
            init=tree.block_of(self.path).init,
        )
        loops = [n for n in self.path[self.top : -1] if n is not self.loop]
        inner = dataclasses.replace(self.loop, kind="serial", thread="")
        return renest((*loops, inner), made, taken)
