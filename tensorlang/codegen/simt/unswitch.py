"""Loop unswitching: hoist loop-invariant conditions.

    for k in range(n):                     if b * 64 + t < m:
        if b * 64 + t < m:         ->          for k in range(n):
            s = s + x[k, b * 64 + t]               s = s + x[k, b * 64 + t]

Computations under the condition, such as a division by a size, can then be hoisted too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tensorlang.ir.contents import free_vars, reads
from tensorlang.ir.nodes import For, Function, If, Node, Stmt
from tensorlang.ir.visit import rebuild, rewriter

_ONE_THREAD: Final = ("serial", "unrolled")  # loops of one thread


def unswitch_loops(function: Function) -> Function:
    """The function with loop-invariant conditions hoisted in device code."""

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
    """Hoist a condition around the whole body of a loop out of it."""
    match loop:
        case For(body=If(cond=cond, then=then, orelse=None)) if (
            loop.kind in _ONE_THREAD
        ):
            if loop.var not in free_vars(cond) and not reads(cond):
                return If(cond, replace(loop, body=then))
    return loop
