"""A block's scratch of which each thread touches its own part only: registers.

    t = alloc(f32[256 * 64], scope="shared")      for j in bound(256, "thread.x"):
    for j in bound(256, "thread.x"):                  t = alloc(f32[64], "register")
        t[j * 64 + a] = S                  ->         t[a] = S
    for j in bound(256, "thread.x"):                  y[.., j] = t[a]
        y[.., j] = t[j * 64 + a]

Sums that live across a loop of staged operands are written as memory of the block, for
each loop over threads is a statement of its own; this is what makes them a thread's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tensorlang.ir.bounds import Range, bounds
from tensorlang.ir.nodes import (
    AtomicUpdate,
    Buffer,
    Const,
    Expr,
    For,
    Load,
    Node,
    Stmt,
    Store,
    Var,
    as_expr,
)
from tensorlang.ir.simplify import simplify
from tensorlang.ir.visit import children, rebuild
from tensorlang.scheduling.linear import linear

_THREAD = "thread.x"


def privatise(body: Stmt, scratch: Iterable[Buffer]) -> tuple[Stmt, tuple[Buffer, ...]]:
    """The body of a block with such scratch in registers, and these registers."""
    made: list[Buffer] = []
    for buffer in scratch:
        part = _part(body, buffer)
        if part is not None:
            own = replace(buffer, scope="register", shape=(as_expr(part),))
            body = _moved(body, buffer, own, part)
            made.append(own)
    return body, tuple(made)


def _part(body: Stmt, buffer: Buffer) -> int | None:
    """Elements of one thread's part; None where threads touch each other's."""
    (size,) = buffer.shape or (as_expr(1),)
    places = list(_places(body, buffer, (), False))
    if not isinstance(size, Const) or not places:
        return None
    found: set[int] = set()
    for index, around in places:
        thread = next((loop for loop in around if loop.thread == _THREAD), None)
        if index is None or thread is None:
            return None
        step = dict(linear(index).terms).get(thread.var, 0)
        low, high = bounds(_rest(index, thread.var, step), _ranges(around))
        if step <= 0 or low is None or low < 0 or high is None or high >= step:
            return None
        if not isinstance(thread.extent, Const):
            return None
        found.add(step)
    return found.pop() if len(found) == 1 else None


def _rest(index: Expr, thread: Var, step: int) -> Expr:
    return simplify(index - thread * step)


def _ranges(around: tuple[For, ...]) -> dict[Var, Range]:
    return {loop.var: (0, simplify(loop.extent - 1)) for loop in around}


def _places(
    node: Node, buffer: Buffer, around: tuple[For, ...], inside: bool
) -> Iterable[tuple[Expr | None, tuple[For, ...]]]:
    """Each access of the buffer: its index, and the loops around it."""
    if isinstance(node, (Load, Store, AtomicUpdate)) and node.buffer == buffer:
        plain = inside and not isinstance(node, AtomicUpdate)
        yield (node.indices[0] if plain and node.indices else None), around
    if isinstance(node, For):
        inside = inside or node.thread == _THREAD
        around = (*around, node)
    for child in children(node):
        if not isinstance(child, Buffer):
            yield from _places(child, buffer, around, inside)


def _moved(body: Stmt, old: Buffer, new: Buffer, step: int) -> Stmt:
    """The body with each thread's part of a buffer in a buffer of its own."""

    def visit(node: Any, thread: Var | None) -> Any:
        if not isinstance(node, Node) or isinstance(node, Buffer):
            return node
        if isinstance(node, For) and node.thread == _THREAD:
            thread = node.var
        made = rebuild(node, lambda child: visit(child, thread))
        if isinstance(made, (Load, Store)) and made.buffer == old:
            assert thread is not None
            index = _rest(made.indices[0], thread, step)
            return replace(made, buffer=new, indices=(index,))
        return made

    return visit(body, None)  # type: ignore[no-any-return]
