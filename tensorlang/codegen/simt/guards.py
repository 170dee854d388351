"""A condition that is the same in all turns of a loop is asked once, before it.

    for k in range(n):                     if b * 64 + t < m:
        if b * 64 + t < m:         ->          for k in range(n):
            s = s + x[k, b * 64 + t]               s = s + x[k, b * 64 + t]

What stands behind it, such as a division by a size, can then leave the loop, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tensorlang.ir.contents import free_vars, reads
from tensorlang.ir.nodes import For, Function, If, Node, Stmt
from tensorlang.ir.visit import rebuild, rewriter

_ONE_THREAD: Final = ("serial", "unrolled")  # loops of one thread


def ask_once(function: Function) -> Function:
    """The function with such conditions around the loops of its launches."""

    @rewriter
    def visit(node: Node) -> Node:
        if not isinstance(node, Stmt):
            return node
        made = rebuild(node, visit)
        return _outside(made) if isinstance(made, For) else made

    @rewriter
    def launch(node: Node) -> Node:
        if isinstance(node, For) and node.kind == "bound":
            return visit(node)
        return rebuild(node, launch) if isinstance(node, Stmt) else node

    return replace(function, body=launch(function.body))


def _outside(loop: For) -> Stmt:
    """The condition that a loop's body is, around the loop."""
    match loop:
        case For(body=If(cond=cond, then=then, orelse=None)) if (
            loop.kind in _ONE_THREAD
        ):
            if loop.var not in free_vars(cond) and not reads(cond):
                return If(cond, replace(loop, body=then))
    return loop
