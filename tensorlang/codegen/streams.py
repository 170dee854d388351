"""Stores around the caches gather at the end of their sequence.

Each needs its address tested, which cuts the code in two: gathered, they share one
test, and the arithmetic of all of them stands in one piece before it. A store moves
down past lets, and past stores to other buffers, that do not read its buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

from tensorlang.ir.contents import reads
from tensorlang.ir.nodes import Function, Let, Node, Seq, Stmt, Store, seq
from tensorlang.ir.visit import rebuild, rewriter


def gather_streams(function: Function) -> Function:
    """The function with nontemporal stores as late in their sequence as they may be."""

    @rewriter
    def visit(node: Node) -> Node:
        match node:
            case Seq():
                return seq(*_gathered([visit(stmt) for stmt in node.stmts]))
            case Stmt():
                return rebuild(node, visit)
            case _:
                return node

    return replace(function, body=visit(function.body))


def is_stream(stmt: Stmt) -> TypeGuard[Store]:
    """Whether a statement stores an unmasked vector around the caches."""
    return (
        isinstance(stmt, Store)
        and "nontemporal" in stmt.hints
        and stmt.mask is None
        and stmt.indices[0].dtype.lanes > 1
    )


def _gathered(stmts: Sequence[Stmt]) -> list[Stmt]:
    out: list[Stmt] = []
    held: list[Store] = []
    for stmt in stmts:
        if is_stream(stmt):
            held.append(stmt)
        elif held and _blocks(stmt, held):
            out += [*held, stmt]
            held = []
        else:
            out.append(stmt)
    return out + held


def _blocks(stmt: Stmt, held: Sequence[Store]) -> bool:
    """Whether held stores must come before a statement."""
    if not isinstance(stmt, (Let, Store)):
        return True
    buffers = {store.buffer for store in held}
    if isinstance(stmt, Store) and stmt.buffer in buffers:
        return True
    return bool(buffers & reads(stmt))
