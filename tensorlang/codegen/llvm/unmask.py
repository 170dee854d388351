"""Turn masked accesses to private scratch into plain ones and a select.

LLVM promotes scratch to registers only if all accesses are plain. If the whole access
is in bounds, reading masked-off lanes is harmless, and so is writing them back
unchanged, since no other thread sees them.

    store(t[ramp(0, 1, 16)], v, mask=m)  ->  t[ramp(0, 1, 16)] = select(m, v, t[...])
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang.codegen.llvm.dead_lanes import has_masks
from tensorlang.codegen.storage import on_stack
from tensorlang.ir import nodes as ir
from tensorlang.ir.visit import nodes_of, rebuild, rewriter


def unmask(function: ir.Function) -> ir.Function:
    """The function without masks on private scratch."""
    if not has_masks(function):
        return function

    @rewriter
    def visit(node: ir.Node) -> ir.Node:
        if isinstance(node, ir.Expr) and not _has_mask(node):
            return node
        new = rebuild(node, visit)
        match new:
            case ir.Load(mask=ir.Expr()) if _within(new):
                zero = ir.splat(ir.Const(0, new.buffer.dtype), new.dtype.lanes)
                return ir.Select(_mask(new), replace(new, mask=None), zero)
            case ir.Store(mask=ir.Expr()) if _within(new):
                old = ir.Load(new.buffer, new.indices)
                value = ir.Select(_mask(new), new.value, old)
                return replace(new, value=value, mask=None)
            case _:
                return new

    return replace(function, body=visit(function.body))


def _has_mask(expr: ir.Expr) -> bool:
    """Whether an expression contains a masked load."""
    return any(load.mask is not None for load in nodes_of(expr, ir.Load))


def _mask(access: ir.Load | ir.Store) -> ir.Expr:
    assert access.mask is not None
    return access.mask


def _within(access: ir.Load | ir.Store) -> bool:
    """Whether all lanes of an access are inside scratch on the stack."""
    buffer = access.buffer
    if not on_stack(buffer) or len(access.indices) != 1:
        return False
    (extent,) = buffer.shape
    assert isinstance(extent, ir.Const)
    match access.indices[0]:
        case ir.Ramp(
            base=ir.Const(value=first), stride=ir.Const(value=step), lanes=lanes
        ):
            last = first + step * (lanes - 1)
            return min(first, last) >= 0 and max(first, last) < extent.value
        case ir.Const(value=place):
            return 0 <= place < extent.value
        case _:
            return False
