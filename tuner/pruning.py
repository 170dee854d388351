"""What is not worth building: static limits, from the scheduled IR alone.

Code that is written out thousands of times takes the compiler minutes and runs past
every instruction cache; a thread's stack is finite. Both are seen before compiling.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Final

from tensorlang.ir.nodes import Alloc, Const, Expr, For, Function, Node, Stmt
from tensorlang.ir.visit import children, walk
from tensorlang.targets import Target

MOST_OPERATIONS: Final = 60_000  # vector operations written out in one kernel
MOST_STACK: Final = 256 << 10  # bytes of one thread's registers and private arrays
_ON_STACK: Final = ("register", "private")


def refusal(func: Function, target: Target) -> str:
    """Why a scheduled function is not worth building; empty where it is."""
    stack = sum(_bytes(stmt) for stmt in walk(func.body) if isinstance(stmt, Alloc))
    if stack > MOST_STACK:
        return (
            f"its temporaries take {stack} bytes of a thread's stack, "
            f"more than {MOST_STACK}"
        )
    operations = _written_out(func.body, 1, target.vector_bits)
    if operations > MOST_OPERATIONS:
        return (
            f"its loops write out {operations} vector operations, "
            f"more than {MOST_OPERATIONS}"
        )
    return ""


def _bytes(stmt: Alloc) -> int:
    buffer = stmt.buffer
    if buffer.scope not in _ON_STACK:
        return 0
    total = buffer.dtype.bytes
    for extent in buffer.shape:
        total *= int(extent.value) if isinstance(extent, Const) else 1
    return total


@singledispatch
def _written_out(node: Node, lanes: int, vector_bits: int) -> int:
    return sum(_written_out(child, lanes, vector_bits) for child in children(node))


@_written_out.register
def _(loop: For, lanes: int, vector_bits: int) -> int:
    extent = int(loop.extent.value) if isinstance(loop.extent, Const) else 1
    if loop.kind == "vectorized":
        return _written_out(loop.body, lanes * extent, vector_bits)
    times = extent if loop.kind == "unrolled" else 1
    return times * _written_out(loop.body, lanes, vector_bits)


@_written_out.register
def _(expr: Expr, lanes: int, vector_bits: int) -> int:
    registers = -(-lanes * expr.dtype.bits // vector_bits)
    below = (c for c in children(expr) if isinstance(c, (Expr, Stmt)))
    return registers + sum(_written_out(child, lanes, vector_bits) for child in below)
