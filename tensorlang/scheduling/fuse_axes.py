"""`fuse_axes` and `fuse_dims`: several axes of a block, or dimensions, become one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tensorlang.errors import ScheduleError
from tensorlang.ir.bounds import Range
from tensorlang.ir.dtypes import i64
from tensorlang.ir.nodes import (
    Alloc,
    AtomicUpdate,
    Axis,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Function,
    Load,
    Node,
    Reduce,
    Store,
    Var,
    as_expr,
)
from tensorlang.ir.simplify import simplify
from tensorlang.ir.visit import fresh, names, rebuild, substitute
from tensorlang.scheduling.linear import linear
from tensorlang.scheduling.primitives import primitive
from tensorlang.scheduling.tree import (
    Path,
    alloc_of,
    block_of,
    enclosing_loops,
    find_alloc,
    find_block,
    function_of,
    replace,
)

_KINDS: Final = ("spatial", "reduction")
_Ranges = dict[Var, Range]


@primitive
def fuse_axes(
    func: Function, block: str, axes: Sequence[str]
) -> tuple[Function, tuple[str, ...]]:
    """Let several axes of a block be one that counts through all of them.

    So a convolution becomes a product of matrices; `fuse` its loops first.

    Args:
        func: The function.
        block: A block that nothing guards.
        axes: The names of its axes, outermost first: all spatial, or all of a
            reduction. Their extents, but for the first, are constants.

    Returns:
        The function, and the name of the new axis in a tuple.

    Raises:
        ScheduleError: the block has no such axes, they are of several kinds, or it is
            guarded.

    Before:

        for f in range(20):
            with block("y", vi=spatial(4, f // 5), vj=spatial(5, f % 5)):
                y[vi, vj] = x[vj, vi]

    After `fuse_axes("y", ["vi", "vj"])`:

        for f in range(20):
            with block("y", vi_vj=spatial(20, f)):
                y[vi_vj // 5, vi_vj % 5] = x[vi_vj % 5, vi_vj // 5]
    """
    path = find_block(func, block)
    chosen = _chosen(block_of(path), axes)
    extents = [axis.extent for axis in chosen]
    _need_constants(extents, f"axes of block {block!r}")
    ranges = {x.var: _below(x.extent) for x in enclosing_loops(path)}
    value = simplify(_flat([axis.value for axis in chosen], extents), ranges)
    var = Var(fresh("_".join(axes), names(func)), i64)
    whole = Axis(var, chosen[0].kind, simplify(_product(extents)), value)
    digits = dict(zip((a.var for a in chosen), _digits(var, extents), strict=True))
    func = replace(path, _with_axis(block_of(path), whole, digits))
    return _as_long(func, block, whole), (var.name,)


def _as_long(func: Function, block: str, whole: Axis) -> Function:
    """The loop that drives the axis, if one does, with the extent written as there."""
    path = find_block(func, block)
    for depth, loop in enumerate(path):
        if not isinstance(loop, For) or loop.var != whole.value:
            continue
        if linear(loop.extent) == linear(whole.extent):
            made = dataclasses.replace(loop, extent=whole.extent)
            return replace(path[: depth + 1], made)
    return func


def _chosen(block: Block, axes: Sequence[str]) -> list[Axis]:
    known = {axis.var.name: axis for axis in block.axes}
    chosen = [known[name] for name in axes if name in known]
    if len(chosen) != len(axes) or len(chosen) <= 1 or len(set(axes)) < len(axes):
        raise ScheduleError(
            f"fuse_axes: block {block.name!r} has the axes {', '.join(known)}; name "
            f"several of them, not {', '.join(axes) or 'none'}"
        )
    if len({axis.kind for axis in chosen}) > 1 or chosen[0].kind not in _KINDS:
        raise ScheduleError(
            f"fuse_axes: {', '.join(axes)} of block {block.name!r} are neither all "
            "spatial nor all of a reduction"
        )
    if block.where is not None:
        raise ScheduleError(
            f"fuse_axes: block {block.name!r} runs only where {block.where!r}; fuse "
            "axes before loops are split"
        )
    return chosen


def _with_axis(block: Block, whole: Axis, digits: Mapping[Var, Expr]) -> Block:
    """The block with an axis in place of those that are its digits."""
    first = next(axis for axis in block.axes if axis.var in digits)
    kept = [
        whole if axis is first else axis
        for axis in block.axes
        if axis is first or axis.var not in digits
    ]
    ranges = {axis.var: _below(axis.extent) for axis in kept}
    return dataclasses.replace(
        block,
        axes=tuple(kept),
        body=_placed(substitute(block.body, digits), ranges),
        init=block.init and _placed(substitute(block.init, digits), ranges),
    )


def _placed(node: Any, ranges: _Ranges) -> Any:
    """The statement with the indices of its accesses simplified."""
    if not isinstance(node, Node) or isinstance(node, Buffer):
        return node
    made = rebuild(node, lambda child: _placed(child, ranges))
    if isinstance(made, Load | Store | Reduce | AtomicUpdate):
        indices = tuple(simplify(index, ranges) for index in made.indices)
        return dataclasses.replace(made, indices=indices)
    return made


@primitive
def fuse_dims(func: Function, buffer: str, dims: Sequence[int]) -> Function:
    """Let several dimensions of a temporary be one that counts through all of them.

    Args:
        func: The function.
        buffer: The name of a temporary that has no layout yet.
        dims: The dimensions, slowest first; they become the first of them. Their
            extents, but for the first, are constants.

    Raises:
        ScheduleError: it is a parameter or has a layout, or has no such dimensions.

    `fuse_dims("t", [0, 2])`:

        t = alloc(f32[4, 3, 5])              t = alloc(f32[20, 3])
        for f in range(20):                  for f in range(20):
            for c in range(3):        ->         for c in range(3):
                t[f // 5, c, f % 5] = S              t[f, c] = S
    """
    path = find_alloc(func, buffer)
    old = alloc_of(path).buffer
    if old.layout is not None or len(dims) <= 1 or not {*dims} <= {*range(old.ndim)}:
        raise ScheduleError(
            f"fuse_dims: {buffer!r} of shape {old.shape!r} has no dimensions {dims} to "
            "fuse, or a layout already"
        )
    extents = [old.shape[dim] for dim in dims]
    _need_constants(extents, f"dimensions of {buffer!r}")
    shape = _fused(old.shape, dims, simplify(_product(extents)))
    new = dataclasses.replace(old, shape=shape)

    def at(indices: tuple[Expr, ...], ranges: _Ranges) -> tuple[Expr, ...]:
        flat = _flat([indices[dim] for dim in dims], extents)
        return _fused(indices, dims, simplify(flat, ranges))

    return _moved(path, old, new, at)


@primitive
def permute_dims(func: Function, buffer: str, order: Sequence[int]) -> Function:
    """Put the dimensions of a temporary into another order.

    Args:
        func: The function.
        buffer: The name of a temporary that has no layout yet.
        order: Its dimensions, the first of the new order first.

    Raises:
        ScheduleError: it is a parameter or has a layout, or these are not all of its
            dimensions.

    `permute_dims("t", [1, 0])`:

        t = alloc(f32[4, 3])                 t = alloc(f32[3, 4])
        for i in range(4):                   for i in range(4):
            for c in range(3):        ->         for c in range(3):
                t[i, c] = S                          t[c, i] = S
    """
    path = find_alloc(func, buffer)
    old = alloc_of(path).buffer
    if old.layout is not None or sorted(order) != list(range(old.ndim)):
        raise ScheduleError(
            f"permute_dims: {list(order)} is no order of the dimensions of {buffer!r}, "
            f"of shape {old.shape!r}, or it has a layout already"
        )
    new = dataclasses.replace(old, shape=tuple(old.shape[dim] for dim in order))

    def at(indices: tuple[Expr, ...], ranges: _Ranges) -> tuple[Expr, ...]:
        del ranges
        return tuple(indices[dim] for dim in order)

    return _moved(path, old, new, at)


def _fused(
    items: tuple[Expr, ...], dims: Sequence[int], whole: Expr
) -> tuple[Expr, ...]:
    """What is said of each dimension, with `whole` in place of the fused ones."""
    return tuple(
        whole if dim == dims[0] else item
        for dim, item in enumerate(items)
        if dim == dims[0] or dim not in dims
    )


def _moved(path: Path, old: Buffer, new: Buffer, at: Any) -> Function:
    """The function on another buffer, at indices that `at` makes of the old ones."""

    def visit(node: Any, ranges: _Ranges) -> Any:
        if not isinstance(node, Node) or isinstance(node, Buffer):
            return node
        if isinstance(node, Alloc):
            return Alloc(new) if node.buffer == old else node
        inner = ranges | _ranges_of(node)
        made = rebuild(node, lambda child: visit(child, inner))
        if isinstance(made, Load | Store | AtomicUpdate) and made.buffer == old:
            indices = at(made.indices, ranges)
            return dataclasses.replace(made, buffer=new, indices=indices)
        if isinstance(made, Reduce) and old in made.buffers:
            if len(made.buffers) > 1:
                raise ScheduleError(f"fuse_dims: {old.name!r} is one of several states")
            indices = at(made.indices, ranges)
            return dataclasses.replace(made, buffers=(new,), indices=indices)
        return made

    func = function_of(path)
    return dataclasses.replace(func, body=visit(func.body, {}))


def _ranges_of(node: Node) -> _Ranges:
    if isinstance(node, For):
        return {node.var: _below(node.extent)}
    if isinstance(node, Block):
        return {axis.var: _below(axis.extent) for axis in node.axes}
    return {}


def _need_constants(extents: Sequence[Expr], what: str) -> None:
    for extent in extents[1:]:
        if not isinstance(extent, Const):
            raise ScheduleError(
                f"the {what} are fused by extents that are constants, but for the "
                f"first; {extent!r} varies"
            )


def _below(extent: Expr) -> Range:
    return 0, simplify(extent - 1)


def _product(extents: Sequence[Expr]) -> Expr:
    total: Expr = as_expr(1)
    for extent in extents:
        total = total * extent
    return total


def _flat(values: Sequence[Expr], extents: Sequence[Expr]) -> Expr:
    """One number of several digits."""
    total = values[0]
    for value, extent in zip(values[1:], extents[1:], strict=True):
        total = total * extent + value
    return total


def _digits(whole: Expr, extents: Sequence[Expr]) -> list[Expr]:
    """The digits of a number, slowest first."""
    found: list[Expr] = []
    for extent in reversed(extents[1:]):
        found.insert(0, whole % extent)
        whole = whole // extent
    return [whole, *found]
