"""Accesses: nodes that name a buffer and indices, and the visitor that changes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias, TypeVar

from tensorlang.ir.nodes import AtomicUpdate, Buffer, Expr, Load, Node, Reduce, Store
from tensorlang.ir.visit import rebuild, rewriter

Access: TypeAlias = Load | Store | Reduce | AtomicUpdate
ACCESSES: Final = (Load, Store, Reduce, AtomicUpdate)
N = TypeVar("N", bound=Node)


def buffers_of(access: Access) -> tuple[Buffer, ...]:
    """The buffer of an access; the buffers of all components of a tuple state."""
    return access.buffers if isinstance(access, Reduce) else (access.buffer,)


def moved(
    access: Access, buffers: Mapping[Buffer, Buffer], indices: tuple[Expr, ...]
) -> Access:
    """The access at other indices, with some buffers replaced."""
    new = tuple(buffers.get(buffer, buffer) for buffer in buffers_of(access))
    if isinstance(access, Reduce):
        return replace(access, buffers=new, indices=indices)
    return replace(access, buffer=new[0], indices=indices)


def change_accesses(node: N, change: Callable[[Access], Node]) -> N:
    """`node` with each access changed, those in indices first; shapes stay."""

    @rewriter
    def visit(current: Node) -> Node:
        if isinstance(current, Buffer):
            return current
        made = rebuild(current, visit)
        return change(made) if isinstance(made, ACCESSES) else made

    return visit(node)  # type: ignore[return-value]
