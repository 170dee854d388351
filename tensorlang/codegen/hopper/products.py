"""Warpgroup products: collective blocks whose loop nest is what `wgmma` computes.

with block("products", .., scope="warpgroup"):       warpgroup_product(64, 4,
    for i in range(64):                                  sums[..], a[s, r, 0],
        for j in range(64):                  ->          b[s, 0, 0])
            for q in range(64):
                sums[r + i, j] += a[s, r + i, q] * b[s, j, q]

Either operand's rows may go along k, too: `a[s, q, r + i]`, `b[s, q, j]`. The first one
may be in registers, distributed as accumulators are: `a[r + i, q]`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from tensorlang.codegen.hopper.effects import effect
from tensorlang.codegen.hopper.layouts import (
    TILE,
    groups_of_rows,
    has_sums,
    is_paneled,
    swizzle_of,
)
from tensorlang.errors import CodegenError
from tensorlang.ir import nodes as ir
from tensorlang.ir.collectives import WARPGROUP
from tensorlang.ir.contents import free_vars
from tensorlang.ir.semantics import evaluate
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.ir.visit import substitute
from tensorlang.machine.gpus import GROUP_ROWS, GROUP_STEPS, LINE, PIECE

KINDS: Final = ("bf16", "f16")


def product_of(block: ir.Block, thread: ir.For, *, waits: bool) -> ir.Evaluate:
    """The instructions of a warpgroup's collective block, for one thread.

    Args:
        thread: The loop over threads.
        waits: Whether it is over then.

    Raises:
        CodegenError: its loops do not match the instruction.
    """
    body, adds = _started(block)
    loops = {loop.var: loop for loop in _nest(body)}
    fold = _innermost(body)
    if not isinstance(fold, ir.Reduce) or fold.reducer.name != "sum" or len(loops) != 3:
        raise _no_product(block, "it is not a nest of three loops around one sum")
    sums = fold.buffers[0]
    i, j = (_moved(block, at, loops) for at in fold.indices)
    q = next((var for var in loops if var not in (i, j)), j)
    left, right = _factors(block, fold, i)
    rows, columns, depth = (_extent(block, loops[var]) for var in (i, j, q))
    if (
        rows != GROUP_ROWS
        or columns % 8
        or not 8 <= columns <= 256
        or depth % GROUP_STEPS
    ):
        raise _no_product(block, f"{rows}x{columns}x{depth} is not a supported shape")
    base = simplify(fold.indices[0] - i)
    if fold.indices[1] != j or free_vars(base) - {thread.var}:
        raise _no_product(
            block, "its accumulators do not start at the warpgroup's rows"
        )
    if not has_sums(sums) or sums.scope == "global":
        raise _no_product(
            block, f"{sums.name} does not have the layout of accumulators in registers"
        )
    first = _first(block, sums, base, thread)
    sides = ((left, i), (right, j))
    if held := has_sums(left.buffer):
        _need_whole(block, left, (simplify(base + i), q), depth)
        a = _first(block, left.buffer, base, thread)
    else:
        a = _start(block, left, i, q)
    starts = a, _start(block, right, j, q)
    turned = [load.indices[-1] != q for load, _ in sides]
    panels = 0 if held else _panel(left), _panel(right)
    shape, how = (columns, depth // GROUP_STEPS), (*turned, *panels, waits)
    return effect("warpgroup_product", *shape, first, *starts, adds, *how)


def _first(block: ir.Block, sums: ir.Buffer, base: ir.Expr, thread: ir.For) -> ir.Load:
    """A thread's first element of 64 rows that are laid out as accumulators."""
    _own_rows(block, ir.Load(sums, (base, ir.as_expr(0))), thread)
    t = thread.var
    return ir.Load(sums, (base + t % 128 // 32 * 16 + t % 32 // 4, t % 4 * 2))


def _need_whole(
    block: ir.Block, load: ir.Load, place: tuple[ir.Expr, ...], depth: int
) -> None:
    """Check that an operand in registers is multiplied by all of its columns."""
    if tuple(map(simplify, load.indices)) != place:
        raise _no_product(block, f"{load!r} is not of the rows of its accumulators")
    if load.buffer.shape[-1] != ir.as_expr(depth):
        raise _no_product(block, f"{load!r} is not all of its {depth} columns")


def _panel(load: ir.Load) -> int:
    """From 64 elements of a row to the next ones in memory, in 16 bytes."""
    rows = load.buffer.shape[-2]
    return int(rows.value) * LINE // PIECE if isinstance(rows, ir.Const) else 0


def _started(block: ir.Block) -> tuple[ir.Stmt, ir.Expr]:
    """The nest of products, and whether they add to earlier sums instead of zero."""
    match block.body:
        case ir.Seq(stmts=(ir.If(cond=first, then=zero, orelse=None), nest)):
            if _zeroes(zero, nest):
                return nest, simplify(~first)
        case ir.Seq(stmts=(zero, nest)) if _zeroes(zero, nest):
            return nest, ir.as_expr(False)
    return block.body, ir.as_expr(True)


def _zeroes(init: ir.Stmt, nest: ir.Stmt) -> bool:
    """Whether an init stores zero to all sums of a nest of products."""
    store, fold = _innermost(init), _innermost(nest)
    if not isinstance(store, ir.Store) or not isinstance(fold, ir.Reduce):
        return False
    around = {loop.var: loop.extent for loop in _nest(nest)}
    pairs = zip(store.indices, fold.indices, strict=True)
    moved = dict(_renamed(pairs, {loop.var for loop in _nest(init)}, set(around)))
    same = [substitute(index, moved) for index in store.indices] == [*fold.indices]
    whole = all(around[moved[x.var]] == x.extent for x in _nest(init) if x.var in moved)
    zero = store.value == ir.Const(0, store.value.dtype) and store.mask is None
    return zero and whole and same and (store.buffer,) == fold.buffers


def _renamed(
    pairs: Iterable[tuple[ir.Expr, ir.Expr]], own: set[ir.Var], other: set[ir.Var]
) -> Iterator[tuple[ir.Var, ir.Var]]:
    """Which loop of an init stands for which one of the products."""
    for index, wanted in pairs:
        yield from zip(free_vars(index) & own, free_vars(wanted) & other, strict=False)


def _nest(stmt: ir.Stmt) -> Iterator[ir.For]:
    while isinstance(stmt, ir.For):
        yield stmt
        stmt = stmt.body


def _innermost(stmt: ir.Stmt) -> ir.Stmt:
    while isinstance(stmt, ir.For):
        stmt = stmt.body
    return stmt


def _factors(block: ir.Block, fold: ir.Reduce, row: ir.Var) -> tuple[ir.Load, ir.Load]:
    """The factor of the rows, and that of the columns."""
    value = fold.values[0]
    found = []
    for side in (value.a, value.b) if isinstance(value, ir.Binary) else ():
        load = (
            side.a if isinstance(side, ir.Cast) and side.dtype.name == "f32" else side
        )
        if isinstance(load, ir.Load) and load.dtype.name in KINDS:
            found.append(load)
    kinds = {load.dtype for load in found}
    multiplied = isinstance(value, ir.Binary) and value.op == "mul" and len(kinds) == 1
    if len(found) != 2 or not multiplied:
        raise _no_product(block, "it does not multiply bf16 or f16 values in f32")
    if row in free_vars(found[1]):
        return found[1], found[0]
    return found[0], found[1]


def _moved(block: ir.Block, index: ir.Expr, loops: dict[ir.Var, ir.For]) -> ir.Var:
    """The loop variable in an index."""
    found = free_vars(index) & loops.keys()
    if len(found) != 1:
        raise _no_product(
            block, f"{index!r} does not depend on exactly one of its loops"
        )
    return next(iter(found))


def _extent(block: ir.Block, loop: ir.For) -> int:
    if not isinstance(loop.extent, ir.Const):
        raise _no_product(block, f"the length of loop {loop.var.name} varies")
    return int(loop.extent.value)


def _own_rows(block: ir.Block, first: ir.Load, thread: ir.For) -> None:
    """Check that each warpgroup multiplies the rows whose accumulators it holds."""
    if not isinstance(thread.extent, ir.Const):
        raise _no_product(block, "its number of threads varies")
    numbers = np.arange(int(thread.extent.value))
    rows = evaluate(first.indices[0], {thread.var: numbers})
    rows = np.broadcast_to(rows, numbers.shape)
    groups = groups_of_rows(first.buffer)
    inside = rows < groups.size  # threads that may execute the block
    if (groups[rows[inside]] != numbers[inside] // WARPGROUP).any():
        raise _no_product(block, "a warpgroup adds to accumulators of another one")


def _start(block: ir.Block, load: ir.Load, row: ir.Var, step: ir.Var) -> ir.Load:
    """Start of an operand's tile; `row` and `step` index its rows and k, or k first."""
    buffer, zero = load.buffer, ir.as_expr(0)
    *lead, at, k = load.indices
    turned = at == step
    if turned:
        at, k = k, at
    base = simplify(at - row)
    if k != step or free_vars(base) & {row, step} or _varies(lead, row, step):
        raise _no_product(block, f"{load!r} does not run along rows and k")
    if turned and simplify(base % TILE) != zero:
        raise _no_product(block, f"{load!r} does not start at a panel of {TILE}")
    panels = buffer.scope == "shared" and is_paneled(buffer, GROUP_STEPS)
    if panels:
        return ir.Load(buffer, (*lead, *((zero, base) if turned else (base, zero))))
    if turned:
        raise _no_product(
            block, f"{buffer.name} is not shared memory in swizzled tiles"
        )
    wide = simplify(buffer.shape[-1] * buffer.dtype.bytes)
    if buffer.scope != "shared" or wide != ir.as_expr(LINE):
        raise _no_product(
            block, f"{buffer.name} is not shared memory with rows of 128 bytes"
        )
    if swizzle_of(buffer) != LINE:
        raise _no_product(block, f"{buffer.name} does not have the 128-byte swizzle")
    return ir.Load(buffer, (*lead, base, zero))


def _varies(exprs: list[ir.Expr], *variables: ir.Var) -> bool:
    return any(free_vars(expr) & set(variables) for expr in exprs)


def _no_product(block: ir.Block, why: str) -> CodegenError:
    return CodegenError(f"block {block.name} cannot be a warpgroup product: {why}")
