"""Bulk stores: one thread of a warpgroup stores its tile from shared memory.

with block("y_write", .., scope="warpgroup"):     if warp == 0 and elect_one():
    for p in range(4):                                for p in unrolled(4):
        for i in range(64):                ->             bulk_store(t[r, p * 64],
            for j in range(64):                               y[0, 0], row, column, ..)
                if row + i < n: y[..] = t[..]         bulk_commit()
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from tensorlang.codegen.hopper.copies import by_dimension, corner_of, row_of, start_of
from tensorlang.codegen.hopper.effects import STORE, effect, moved
from tensorlang.codegen.hopper.layouts import SWIZZLES, TILE, is_paneled
from tensorlang.errors import CodegenError
from tensorlang.ir import nodes as ir
from tensorlang.ir.collectives import WARP, WARPGROUP
from tensorlang.ir.contents import free_vars
from tensorlang.ir.simplification.conditions import conjuncts
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.machine.gpus import MAPPED


def is_store(block: ir.Block) -> bool:
    """Whether a collective block copies from shared to global memory."""
    _, _, body = _nest(block)
    store = isinstance(body, ir.Store) and isinstance(body.value, ir.Load)
    return store and body.buffer.scope == "global"  # type: ignore[attr-defined]


def store_of(block: ir.Block, thread: ir.Var) -> ir.Stmt:
    """The instructions of a warpgroup's copy, issued by a thread that is elected.

    Raises:
        CodegenError: it is not expressible as bulk stores.
    """
    loops, cond, body = _nest(block)
    assert isinstance(body, ir.Store)
    source = body.value
    assert isinstance(source, ir.Load)
    if len(loops) < 2 or body.mask is not None or body.buffer.ndim not in MAPPED:
        raise _no_store(block, "it does not copy a tile by rows and columns")
    inner = _tile(loops)
    tests = [at < n for at, n in zip(body.indices, body.buffer.shape, strict=True)]
    if any(test not in tests for test in conjuncts(cond)):
        raise _no_store(block, f"it stores only where {cond!r}")
    counts = [loop.extent for loop in inner]
    sizes = [int(count.value) for count in counts if isinstance(count, ir.Const)]
    if sizes[-1:] != [TILE] or prod(sizes[:-1]) != TILE or len(sizes) != len(counts):
        raise _no_store(block, f"its tiles are not {TILE} by {TILE}")
    found = corner_of(body.indices, [loop.var for loop in inner])
    row, column = source.indices[-2:]
    start = (
        *source.indices[:-2],
        simplify(row - row_of(inner[:-1])),
        simplify(column - inner[-1].var),
    )
    own = {loop.var for loop in inner}
    if found is None or any(free_vars(at) & own for at in start):
        raise _no_store(block, "it does not go along rows")
    to, dims = found
    if any(simplify(at % TILE) != ir.as_expr(0) for at in start[-2:]):
        raise _no_store(block, "it does not start at a tile")
    if not is_paneled(source.buffer):
        raise _no_store(
            block, f"{source.buffer.name} is not laid out in swizzled tiles"
        )
    places = ir.Load(source.buffer, start), start_of(body.buffer)
    box = by_dimension(len(to), dims, sizes, 1)
    made: ir.Stmt = moved(
        STORE, places, to, body.buffer.shape, box=box, swizzle=SWIZZLES[0]
    )
    for loop in reversed(loops[: -len(inner)]):
        made = replace(loop, kind="unrolled", body=made)
    alone = ir.If(effect("elect_one").expr, ir.seq(made, effect("bulk_commit")))
    return ir.If((thread % WARPGROUP // WARP).equal(0), alone)


def _tile(loops: Sequence[ir.For]) -> Sequence[ir.For]:
    """The innermost loops, over columns and over as many rows as a tile has."""
    rows, first = 1, len(loops) - 1
    while first and rows < TILE:
        first -= 1
        count = loops[first].extent
        rows *= int(count.value) if isinstance(count, ir.Const) else TILE
    return loops[first:]


def _nest(block: ir.Block) -> tuple[list[ir.For], ir.Expr | None, ir.Stmt]:
    """The loops of a block, the condition in them, and what they are around."""
    loops, stmt = [], block.body
    while isinstance(stmt, ir.For):
        loops.append(stmt)
        stmt = stmt.body
    if isinstance(stmt, ir.If) and stmt.orelse is None:
        return loops, stmt.cond, stmt.then
    return loops, None, stmt


def _no_store(block: ir.Block, why: str) -> CodegenError:
    return CodegenError(f"block {block.name} cannot be a bulk store: {why}")
