"""Which warpgroups access which elements of a temporary, evaluated for all threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tensorlang.ir import nodes as ir
from tensorlang.ir.collectives import WARPGROUP
from tensorlang.ir.contents import free_vars, loops, touches
from tensorlang.ir.semantics import evaluate
from tensorlang.ir.visit import children, substitute
from tensorlang.scheduling.analysis import tree


def kept_by_groups(root: ir.Stmt, buffer: ir.Buffer) -> bool:
    """Whether each element of a temporary is accessed by threads of one warpgroup."""
    shape = [tree.constant(extent) for extent in buffer.shape]
    if None in shape:
        return False
    sizes = [n or 0 for n in shape]
    owner = np.full(sizes, -1, np.int64)
    for nest in loops(root):
        if not nest.thread or not touches(nest, buffer):
            continue
        for indices, around, step in _accesses(nest, buffer, {}, (), 1):
            found = _elements(indices, around, step)
            if found is None:
                return False
            at, group = _inside(*found, sizes)
            if ((owner[at] != -1) & (owner[at] != group)).any():
                return False
            owner[at] = group
            if (owner[at] != group).any():
                return False
    return True


def _inside(
    at: tuple[np.ndarray, ...], group: np.ndarray, sizes: list[int]
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Those that are elements: a condition keeps the others from being accessed."""
    pairs = zip(at, sizes, strict=True)
    held = np.all([(axis >= 0) & (axis < size) for axis, size in pairs], axis=0)
    return tuple(axis[held] for axis in at), group[held]


def _accesses(
    node: ir.Node,
    buffer: ir.Buffer,
    values: Mapping[ir.Var, ir.Expr],
    around: tuple[ir.For, ...],
    step: int,
) -> Iterator[tuple[tuple[ir.Expr, ...], tuple[ir.For, ...], int]]:
    """The indices of each access, the loops around, and threads that act as one."""
    if isinstance(node, ir.Load | ir.Store | ir.AtomicUpdate) and node.buffer == buffer:
        yield tuple(substitute(index, values) for index in node.indices), around, step
    if isinstance(node, ir.For):
        around = (*around, node)
    if isinstance(node, ir.Block):
        own = {axis.var: substitute(axis.value, values) for axis in node.axes}
        values = {**values, **own}
        step = WARPGROUP if node.scope == "warpgroup" else step
    for child in children(node):
        if not isinstance(child, ir.Buffer):
            yield from _accesses(child, buffer, values, around, step)


def _elements(
    indices: tuple[ir.Expr, ...], around: tuple[ir.For, ...], step: int
) -> tuple[tuple[np.ndarray, ...], np.ndarray] | None:
    """The elements of an access, and their groups; None where they vary otherwise."""
    counts = [tree.constant(loop.extent) for loop in around]
    used = frozenset[ir.Var]().union(*map(free_vars, indices))
    if None in counts or used - {loop.var for loop in around}:
        return None
    thread, *inner = (np.arange(n or 0) for n in counts)
    grid = np.meshgrid(thread[::step], *inner, indexing="ij", sparse=True)
    known = {loop.var: part for loop, part in zip(around, grid, strict=True)}
    whole = np.broadcast_shapes(*(part.shape for part in grid))
    at = tuple(np.broadcast_to(evaluate(index, known), whole) for index in indices)
    return at, np.broadcast_to(grid[0] // WARPGROUP, whole)
