"""Products of warpgroups: a collective block whose loops are what `wgmma` computes.

with block("products", .., scope="warpgroup"):       warpgroup_product(64, 4,
    for i in range(64):                                  sums[..], a[s, r, 0],
        for j in range(64):                  ->          b[s, 0, 0])
            for q in range(64):
                sums[r + i, j] += a[s, r + i, q] * b[s, j, q]
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tensorlang.codegen.hopper.effects import effect
from tensorlang.codegen.hopper.layouts import (
    WARPGROUP,
    groups_of_rows,
    has_sums,
    swizzle_of,
)
from tensorlang.errors import CodegenError
from tensorlang.ir.contents import free_vars
from tensorlang.ir.nodes import (
    Binary,
    Block,
    Cast,
    Const,
    Evaluate,
    Expr,
    For,
    Load,
    Reduce,
    Stmt,
    Var,
    as_expr,
)
from tensorlang.ir.semantics import evaluate
from tensorlang.ir.simplify import simplify

_ROWS = 64
_STEP = 16  # of k in one instruction
_ROW_BYTES = 128


def product_of(block: Block, thread: For) -> Evaluate:
    """The instructions of a collective block of a warpgroup, for one of its threads.

    Raises:
        CodegenError: its loops are not what hardware computes.
    """
    loops = {loop.var: loop for loop in _nest(block.body)}
    fold = _innermost(block.body)
    if not isinstance(fold, Reduce) or fold.reducer.name != "sum" or len(loops) != 3:
        raise _no_product(block, "it is no nest of three loops around one sum")
    left, right = _factors(block, fold)
    sums = fold.buffers[0]
    i, j, q = (_moved(block, at, loops) for at in (*fold.indices, right.indices[-1]))
    rows, columns, depth = (_extent(block, loops[var]) for var in (i, j, q))
    if rows != _ROWS or columns % 8 or not 8 <= columns <= 256 or depth % _STEP:
        raise _no_product(block, f"{rows}x{columns}x{depth} is no shape of its own")
    base = simplify(fold.indices[0] - i)
    if fold.indices[1] != j or free_vars(base) - {thread.var}:
        raise _no_product(block, "its sums do not start at rows of the warpgroup")
    if not has_sums(sums) or sums.scope != "register":
        raise _no_product(block, f"{sums.name} does not lie in registers as sums do")
    _own_rows(block, Load(sums, (base, as_expr(0))), thread)
    t = thread.var
    first = Load(sums, (base + t % 128 // 32 * 16 + t % 32 // 4, t % 4 * 2))
    starts = [_start(block, load, at, q) for load, at in ((left, i), (right, j))]
    return effect("warpgroup_product", columns, depth // _STEP, first, *starts)


def _nest(stmt: Stmt) -> Iterator[For]:
    while isinstance(stmt, For):
        yield stmt
        stmt = stmt.body


def _innermost(stmt: Stmt) -> Stmt:
    while isinstance(stmt, For):
        stmt = stmt.body
    return stmt


def _factors(block: Block, fold: Reduce) -> tuple[Load, Load]:
    value = fold.values[0]
    found = []
    for side in (value.a, value.b) if isinstance(value, Binary) else ():
        load = side.a if isinstance(side, Cast) and side.dtype.name == "f32" else side
        if isinstance(load, Load) and load.dtype.name == "bf16":
            found.append(load)
    if len(found) != 2 or not isinstance(value, Binary) or value.op != "mul":
        raise _no_product(block, "it does not multiply numbers of bf16 in f32")
    return found[0], found[1]


def _moved(block: Block, index: Expr, loops: dict[Var, For]) -> Var:
    """The loop that an index runs with."""
    found = free_vars(index) & loops.keys()
    if len(found) != 1:
        raise _no_product(block, f"{index!r} does not run with one of its loops")
    return next(iter(found))


def _extent(block: Block, loop: For) -> int:
    if not isinstance(loop.extent, Const):
        raise _no_product(block, f"the length of loop {loop.var.name} varies")
    return int(loop.extent.value)


def _own_rows(block: Block, first: Load, thread: For) -> None:
    """Each warpgroup multiplies the rows whose sums it has."""
    if not isinstance(thread.extent, Const):
        raise _no_product(block, "its number of threads varies")
    numbers = np.arange(int(thread.extent.value))
    rows = evaluate(first.indices[0], {thread.var: numbers})
    rows = np.broadcast_to(rows, numbers.shape)
    groups = groups_of_rows(first.buffer)
    inside = rows < groups.size  # of those threads that may come here
    if (groups[rows[inside]] != numbers[inside] // WARPGROUP).any():
        raise _no_product(block, "a warpgroup adds to sums of another one")


def _start(block: Block, load: Load, row: Var, step: Var) -> Load:
    """Where a tile of an operand starts: its rows run with `row`, k with `step`."""
    buffer = load.buffer
    *lead, at, k = load.indices
    base = simplify(at - row)
    if k != step or free_vars(base) & {row, step} or _varies(lead, row, step):
        raise _no_product(block, f"{load!r} does not run along rows and k")
    wide = simplify(buffer.shape[-1] * buffer.dtype.bytes)
    if buffer.scope != "shared" or wide != as_expr(_ROW_BYTES):
        raise _no_product(block, f"{buffer.name} has no rows of 128 bytes, shared")
    if swizzle_of(buffer) != _ROW_BYTES:
        raise _no_product(block, f"{buffer.name} has not the swizzle of 128 bytes")
    return Load(buffer, (*lead, base, as_expr(0)))


def _varies(exprs: list[Expr], *variables: Var) -> bool:
    return any(free_vars(expr) & set(variables) for expr in exprs)


def _no_product(block: Block, why: str) -> CodegenError:
    return CodegenError(f"block {block.name} can be no product of a warpgroup: {why}")
