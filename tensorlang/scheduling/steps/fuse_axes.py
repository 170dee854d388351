"""`fuse_axes`: several axes of a block become one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir import nodes as ir
from tensorlang.ir.accesses import Access, buffers_of, change_accesses, moved
from tensorlang.ir.contents import names
from tensorlang.ir.dtypes import i64
from tensorlang.ir.integers.bounds import counted
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.ir.visit import fresh, substitute
from tensorlang.scheduling.analysis.facts import Ranges, product, ranges_at
from tensorlang.scheduling.analysis.legality import legality
from tensorlang.scheduling.analysis.tree import block_of, find_block, replace
from tensorlang.scheduling.primitives import primitive

_KINDS: Final = ("spatial", "reduction")


@primitive
def fuse_axes(
    func: ir.Function, block: str, axes: Sequence[str]
) -> tuple[ir.Function, str]:
    """Fuse several axes of a block into one.

    This turns a convolution into a matrix product; `fuse` its loops first.

    Args:
        block: A block without guards.
        axes: The names of its axes, outermost first: all spatial or all reduction axes.
            All extents but the first must be constants.

    Returns:
        The function, and the name of the new axis.

    Raises:
        ScheduleError: the block has no such axes, their kinds differ, or it is guarded.

    Before:

        for f in range(20):
            with block("y", vi=spatial(4, f // 5), vj=spatial(5, f % 5)):
                y[vi, vj] = x[vj, vi]

    After `fuse_axes("y", ["vi", "vj"])`:

        for f in range(20):
            with block("y", vi_j=spatial(20, f)):
                y[vi_j // 5, vi_j % 5] = x[vi_j % 5, vi_j // 5]
    """
    path = find_block(func, block)
    chosen = _chosen(block_of(path), axes)
    extents = [axis.extent for axis in chosen]
    need_constants(extents, f"axes of block {block!r}")
    ranges = ranges_at(path)
    value = simplify(flat([axis.value for axis in chosen], extents), ranges)
    name = "v" + "_".join(axis.removeprefix("v") for axis in axes)
    var = ir.Var(fresh(name, names(func)), i64)
    whole = ir.Axis(var, chosen[0].kind, simplify(product(extents)), value)
    digits = dict(zip((a.var for a in chosen), _digits(var, extents), strict=True))
    func = replace(path, _with_axis(block_of(path), whole, digits, ranges))
    return _as_long(func, block, whole), var.name


def _as_long(func: ir.Function, block: str, whole: ir.Axis) -> ir.Function:
    """Spell the driving loop's extent, if there is one, like the axis's."""
    path = find_block(func, block)
    for depth, loop in enumerate(path):
        if not isinstance(loop, ir.For) or loop.var != whole.value:
            continue
        if linear(loop.extent) == linear(whole.extent):
            made = dataclasses.replace(loop, extent=whole.extent)
            return replace(path[: depth + 1], made)
    return func


def _chosen(block: ir.Block, axes: Sequence[str]) -> list[ir.Axis]:
    known = {axis.var.name: axis for axis in block.axes}
    chosen = [known[name] for name in axes if name in known]
    if len(chosen) != len(axes) or len(chosen) <= 1 or len(set(axes)) < len(axes):
        raise ScheduleError(
            f"fuse_axes: block {block.name!r} has the axes {', '.join(known)}; name "
            f"several of them, not {', '.join(axes) or 'none'}"
        )
    of_one_kind(block, chosen)
    if block.where is not None:
        raise ScheduleError(
            f"fuse_axes: block {block.name!r} runs only where {block.where!r}; fuse "
            "axes before loops are split"
        )
    return chosen


@legality("fused axes are all spatial or all reduction axes")
def of_one_kind(block: ir.Block, axes: Sequence[ir.Axis]) -> str | None:
    """A fused axis has one kind, and one that does not prescribe an order."""
    if len({axis.kind for axis in axes}) > 1 or axes[0].kind not in _KINDS:
        names = ", ".join(axis.var.name for axis in axes)
        return (
            f"fuse_axes: {names} of block {block.name!r} are neither all spatial nor "
            "all of a reduction"
        )
    return None


def _with_axis(
    block: ir.Block, whole: ir.Axis, digits: Mapping[ir.Var, ir.Expr], around: Ranges
) -> ir.Block:
    """The block with one axis in place of those that are its digits."""
    first = next(axis for axis in block.axes if axis.var in digits)
    kept = [
        whole if axis is first else axis
        for axis in block.axes
        if axis is first or axis.var not in digits
    ]
    ranges = {**around, **{axis.var: counted(axis.extent) for axis in kept}}
    return dataclasses.replace(
        block,
        axes=tuple(kept),
        body=_placed(substitute(block.body, digits), ranges),
        init=block.init and _placed(substitute(block.init, digits), ranges),
    )


def _placed(stmt: ir.Stmt, ranges: Ranges) -> ir.Stmt:
    """The statement with the indices of its accesses simplified."""

    def change(access: Access) -> Access:
        pairs = zip(access.indices, buffers_of(access)[0].shape, strict=True)
        return moved(access, {}, tuple(simple_index(i, n, ranges) for i, n in pairs))

    return change_accesses(stmt, change)


def simple_index(index: ir.Expr, extent: ir.Expr, ranges: Ranges) -> ir.Expr:
    """An index simplified, unless that is out of bounds, as in code that never runs."""
    made = simplify(index, ranges)
    if isinstance(made, ir.Const) and isinstance(extent, ir.Const):
        return made if 0 <= made.value < extent.value else index
    return made


def need_constants(extents: Sequence[ir.Expr], what: str) -> None:
    """Refuse to fuse by dynamic extents, except for the first.

    Raises:
        ScheduleError: naming `what` would be fused.
    """
    for extent in extents[1:]:
        if not isinstance(extent, ir.Const):
            raise ScheduleError(
                f"the {what} are fused by extents that are constants, but for the "
                f"first; {extent!r} varies"
            )


def flat(values: Sequence[ir.Expr], extents: Sequence[ir.Expr]) -> ir.Expr:
    """The mixed-radix number with these digits."""
    total = values[0]
    for value, extent in zip(values[1:], extents[1:], strict=True):
        total = total * extent + value
    return total


def _digits(whole: ir.Expr, extents: Sequence[ir.Expr]) -> list[ir.Expr]:
    """The digits of a number, slowest first."""
    found: list[ir.Expr] = []
    for extent in reversed(extents[1:]):
        found.insert(0, whole % extent)
        whole = whole // extent
    return [whole, *found]
