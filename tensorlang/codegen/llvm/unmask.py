"""Masked accesses to a thread's own scratch become plain ones and a select.

LLVM keeps scratch in registers only where every access is plain. Reading a lane too
many is harmless where the whole access lies inside the scratch, and writing it back
unchanged is, too, since no other thread sees it.

    store(t[ramp(0, 1, 16)], v, mask=m)  ->  t[ramp(0, 1, 16)] = select(m, v, t[...])
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang.codegen.storage import on_stack
from tensorlang.ir.nodes import (
    Const,
    Expr,
    Function,
    Load,
    Node,
    Ramp,
    Select,
    Store,
    splat,
)
from tensorlang.ir.visit import rebuild, rewriter


def unmask(function: Function) -> Function:
    """The function with no mask on scratch of its own."""

    @rewriter
    def visit(node: Node) -> Node:
        new = rebuild(node, visit)
        match new:
            case Load(mask=Expr()) if _within(new):
                zero = splat(Const(0, new.buffer.dtype), new.dtype.lanes)
                return Select(_mask(new), replace(new, mask=None), zero)
            case Store(mask=Expr()) if _within(new):
                old = Load(new.buffer, new.indices)
                value = Select(_mask(new), new.value, old)
                return replace(new, value=value, mask=None)
            case _:
                return new

    return replace(function, body=visit(function.body))


def _mask(access: Load | Store) -> Expr:
    assert access.mask is not None
    return access.mask


def _within(access: Load | Store) -> bool:
    """Whether all lanes of an access lie inside scratch on the stack."""
    buffer = access.buffer
    if not on_stack(buffer) or len(access.indices) != 1:
        return False
    (extent,) = buffer.shape
    assert isinstance(extent, Const)
    match access.indices[0]:
        case Ramp(base=Const(value=first), stride=Const(value=step), lanes=lanes):
            last = first + step * (lanes - 1)
            return min(first, last) >= 0 and max(first, last) < extent.value
        case Const(value=place):
            return 0 <= place < extent.value
        case _:
            return False
