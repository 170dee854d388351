"""`fuse_dims` and `permute_dims`: reindex a temporary, keeping its elements."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeAlias

from tensorlang.errors import ScheduleError
from tensorlang.ir import nodes as ir
from tensorlang.ir.accesses import ACCESSES, buffers_of, moved
from tensorlang.ir.integers.bounds import counted
from tensorlang.ir.integers.size_bounds import size_ranges
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.ir.visit import rebuild, rewriter, walk
from tensorlang.scheduling.analysis.facts import Ranges, product
from tensorlang.scheduling.analysis.legality import legality
from tensorlang.scheduling.analysis.tree import Path, alloc_of, find_alloc, function_of
from tensorlang.scheduling.primitives import primitive
from tensorlang.scheduling.steps.fuse_axes import flat, need_constants, simple_index

_Indices: TypeAlias = tuple[ir.Expr, ...]


@primitive
def fuse_dims(func: ir.Function, buffer: str, dims: Sequence[int]) -> ir.Function:
    """Fuse several dimensions of a temporary into one.

    Args:
        buffer: The name of a temporary without a layout.
        dims: The dimensions, slowest first; they are replaced at the first one's
            position. All extents but the first must be constants.

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
    known = len({*dims} & {*range(old.ndim)}) == len(dims)  # and distinct
    if old.layout is not None or len(dims) <= 1 or not known:
        raise ScheduleError(
            f"fuse_dims: {buffer!r} of shape {old.shape!r} has no dimensions {dims} to "
            "fuse, or a layout already"
        )
    extents = [old.shape[dim] for dim in dims]
    need_constants(extents, f"dimensions of {buffer!r}")
    extent = simplify(product(extents))
    shape = _fused(old.shape, dims, extent)
    new = dataclasses.replace(old, shape=shape)

    def at(indices: tuple[ir.Expr, ...], ranges: Ranges) -> tuple[ir.Expr, ...]:
        whole = flat([indices[dim] for dim in dims], extents)
        return _fused(indices, dims, simple_index(whole, extent, ranges))

    return _moved(path, old, new, at)


@primitive
def permute_dims(func: ir.Function, buffer: str, order: Sequence[int]) -> ir.Function:
    """Permute the dimensions of a temporary.

    Args:
        buffer: The name of a temporary without a layout.
        order: The old dimensions in their new order.

    Raises:
        ScheduleError: it is a parameter or has a layout, or `order` is no permutation.

    `permute_dims("t", [1, 0])`:

        t = alloc(f32[4, 3])                 t = alloc(f32[3, 4])
        for i in range(4):                   for i in range(4):
            for c in range(3):        ->         for c in range(3):
                t[i, c] = S                          t[c, i] = S
    """
    path = find_alloc(func, buffer)
    old = alloc_of(path).buffer
    every_dimension_once(old, order)
    if old.layout is not None or not {*order} <= {*range(old.ndim)}:
        raise ScheduleError(
            f"permute_dims: {buffer!r} of shape {old.shape!r} has a layout already, or "
            f"no dimensions {list(order)}"
        )
    new = dataclasses.replace(old, shape=tuple(old.shape[dim] for dim in order))

    def at(indices: tuple[ir.Expr, ...], ranges: Ranges) -> tuple[ir.Expr, ...]:
        del ranges
        return tuple(indices[dim] for dim in order)

    return _moved(path, old, new, at)


@legality("reordered dimensions are a permutation")
def every_dimension_once(buffer: ir.Buffer, order: Sequence[int]) -> str | None:
    """No two elements get the same address."""
    if sorted(order) != list(range(buffer.ndim)):
        return (
            f"permute_dims: {list(order)} is not a permutation of the dimensions of "
            f"{buffer.name!r}, of shape {buffer.shape!r}"
        )
    return None


@legality("components of a state have the same indices")
def sole_component(func: ir.Function, buffer: ir.Buffer) -> str | None:
    """No reduction combines it together with another buffer."""
    for node in walk(func.body):
        if isinstance(node, ir.Reduce) and buffer in node.buffers and node.buffers[1:]:
            return f"{buffer.name!r} is one of several states, which are indexed alike"
    return None


def _fused(
    items: tuple[ir.Expr, ...], dims: Sequence[int], whole: ir.Expr
) -> tuple[ir.Expr, ...]:
    """Per-dimension items, with `whole` in place of those fused."""
    return tuple(
        whole if dim == dims[0] else item
        for dim, item in enumerate(items)
        if dim == dims[0] or dim not in dims
    )


def _moved(
    path: Path,
    old: ir.Buffer,
    new: ir.Buffer,
    at: Callable[[_Indices, Ranges], _Indices],
) -> ir.Function:
    """The function using another buffer, at indices mapped by `at`."""

    @rewriter
    def visit(node: ir.Node, ranges: Ranges) -> ir.Node:
        if isinstance(node, ir.Buffer):
            return node
        if isinstance(node, ir.Alloc):
            return ir.Alloc(new) if node.buffer == old else node
        inner = {**ranges, **_ranges_of(node)}
        made = rebuild(node, lambda child: visit(child, inner))
        if isinstance(made, ACCESSES) and old in buffers_of(made):
            return moved(made, {old: new}, at(made.indices, ranges))
        return made

    func = function_of(path)
    sole_component(func, old)
    return dataclasses.replace(func, body=visit(func.body, size_ranges(func)))


def _ranges_of(node: ir.Node) -> Ranges:
    if isinstance(node, ir.For):
        return {node.var: counted(node.extent)}
    if isinstance(node, ir.Block):
        return {axis.var: counted(axis.extent) for axis in node.axes}
    return {}
