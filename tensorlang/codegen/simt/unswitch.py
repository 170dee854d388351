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
from tensorlang.ir.nodes import For, Function, If, Stmt
from tensorlang.ir.visit import rebuild_statements, transform_statements

_ONE_THREAD: Final = ("serial", "unrolled")  # loops of one thread


def unswitch_loops(function: Function) -> Function:
    """The function with loop-invariant conditions hoisted in device code."""

    def launch(stmt: Stmt) -> Stmt:
        if isinstance(stmt, For) and stmt.kind == "bound":
            return transform_statements(stmt, _outside)
        return rebuild_statements(stmt, launch)

    return rebuild_statements(function, launch)


def _outside(loop: Stmt) -> Stmt:
    """Hoist a condition around the whole body of a loop out of it."""
    match loop:
        case For(body=If(cond=cond, then=then, orelse=None)) if (
            loop.kind in _ONE_THREAD
        ):
            if loop.var not in free_vars(cond) and not reads(cond):
                return If(cond, replace(loop, body=then))
    return loop
