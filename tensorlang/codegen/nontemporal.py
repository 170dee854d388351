"""Sink nontemporal stores to the end of their sequence.

Each needs a test of its address's alignment, which splits the basic block. Grouped,
they share one test, and the arithmetic before it is one block. A store moves past lets
and past stores to other buffers that do not read its buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from tensorlang.ir.contents import reads
from tensorlang.ir.nodes import Function, Let, Seq, Stmt, Store, seq
from tensorlang.ir.visit import transform_statements


def sink_nontemporal(function: Function) -> Function:
    """The function with nontemporal stores as late in their sequence as possible."""
    return transform_statements(function, _gathered)


def is_nontemporal(stmt: Stmt) -> TypeGuard[Store]:
    """Whether a statement is an unmasked nontemporal vector store."""
    return (
        isinstance(stmt, Store)
        and "nontemporal" in stmt.hints
        and stmt.mask is None
        and stmt.indices[0].dtype.lanes > 1
    )


def _gathered(whole: Stmt) -> Stmt:
    """A sequence with its nontemporal stores sunk; other statements are unchanged."""
    if not isinstance(whole, Seq):
        return whole
    out: list[Stmt] = []
    held: list[Store] = []
    for stmt in whole.stmts:
        if is_nontemporal(stmt):
            held.append(stmt)
        elif held and _blocks(stmt, held):
            out += [*held, stmt]
            held = []
        else:
            out.append(stmt)
    return seq(*out, *held)


def _blocks(stmt: Stmt, held: Sequence[Store]) -> bool:
    """Whether a statement must not precede the held stores."""
    if not isinstance(stmt, (Let, Store)):
        return True
    buffers = {store.buffer for store in held}
    if isinstance(stmt, Store) and stmt.buffer in buffers:
        return True
    return bool(buffers & reads(stmt))
