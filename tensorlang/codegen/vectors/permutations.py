"""Accesses to consecutive elements in another order: one vector, and a shuffle.

u = x[ramp(b, -1, 16)]         ->  u = shuffle((x[ramp(b - 15, 1, 16)],), (15, ...))
y[ramp(0, 1, 8) ^ 4] = u           y[ramp(0, 1, 8)] = shuffle((u,), (4, 5, ...))
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tensorlang.codegen.folding import add
from tensorlang.codegen.vectors.tile_indices import steps_of
from tensorlang.ir import nodes as ir
from tensorlang.ir.dtypes import i64
from tensorlang.ir.visit import holds, rebuild, rewriter


def permutations(function: ir.Function) -> ir.Function:
    """The function with permuted accesses as contiguous ones."""

    @rewriter
    def visit(node: ir.Node) -> ir.Node:
        if isinstance(node, ir.Expr) and not holds(node, ir.Load):
            return node
        made = rebuild(node, visit)
        match made:
            case ir.Load(indices=(index,), mask=None):
                found = _permutation(index)
                if found is not None:
                    first, order = found
                    return _shuffled(replace(made, indices=(first,)), order)
            case ir.Store(indices=(index,), mask=None, value=value):
                found = _permutation(index)
                if found is not None:
                    first, order = found
                    value = _shuffled(value, np.argsort(order).tolist())
                    return replace(made, indices=(first,), value=value)
        return made

    return replace(function, body=visit(function.body))


def _shuffled(value: ir.Expr, order: list[int]) -> ir.Expr:
    if order == sorted(order):
        return value
    return ir.Shuffle((value,), tuple(order))


def _permutation(index: ir.Expr) -> tuple[ir.Expr, list[int]] | None:
    """The ramp over the elements of a permuted index, and their order; None if none."""
    match index:
        case ir.Ramp(stride=ir.Const(value=1)):
            return None
    found = steps_of(index) if index.dtype.lanes > 1 else None
    if found is None:
        return None
    base, steps = found
    low, lanes = int(steps.min()), len(steps)
    order = steps - low
    if (np.sort(order) != np.arange(lanes)).any():
        return None
    return ir.ramp(add(base, ir.Const(low, i64)), lanes), order.tolist()
