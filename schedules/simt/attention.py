"""Attention on tensor cores: a block of threads for each tile of queries.

    for z, g in bound(..., "block.*"):
        query = alloc(bf16[64, 64], scope="shared")
        result = alloc(f32[64, 64], ...)              # in registers, as fragments
        for t in range(...):                          # copies run ahead
            keys, values = alloc(bf16[2, 64, 64], scope="shared")
            scores += query . keys                    # fragments, from `ldmatrix`
            top, total, weights, result               # lanes exchange along rows
            result += weights . values                # weights stay in registers

The gradient has three such nests, in one of which keys are rows and queries columns.

Each warp has whole rows of scores and of results, so that maxima and sums are those of
four neighbouring lanes. Its weights are distributed as sums of a product are, which is
how another product takes its first operand.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from typing import Final

from tensorlang.ir.collectives import WARP
from tensorlang.ir.contents import allocations, blocks, loops
from tensorlang.ir.nodes import (
    Block,
    Buffer,
    Const,
    For,
    Load,
    Reduce,
    Seq,
    Stmt,
    Store,
)
from tensorlang.ir.visit import nodes_of, walk_statements
from tensorlang.schedules.simt.fragments import (
    QUAD,
    Lanes,
    bind_threads,
    fragment_layout,
    row_layout,
    staged_rows,
    swizzled,
)
from tensorlang.schedules.simt.tensor_contractions import bind_blocks
from tensorlang.schedules.simt.tensor_cores import FORMS
from tensorlang.schedules.tiling import extent
from tensorlang.scheduling import Knobs, Schedule, schedule

_STAGES: Final = (1, 2, 3)
_WARPS: Final = 4  # of a block, each with whole rows
_OPERANDS: Final = 2  # operands of a product


@schedule("attention", algorithm="tiles", model="simt")
def tiles(s: Schedule, knobs: Knobs) -> None:
    """Products of fragments, and everything else on the fragments."""
    body = s.function.body
    steps = body.stmts if isinstance(body, Seq) else (body,)
    for n, nest in enumerate(step for step in steps if isinstance(step, For)):
        _scheduled(s, knobs, nest, f"stages_{n}" if n else "stages")


def _scheduled(s: Schedule, knobs: Knobs, nest: Stmt, knob: str) -> None:
    """Schedule the loops over tiles of rows and of columns, for one launch."""
    around = [loop for loop in loops(nest) if any(allocations(loop))]
    names, steps = [loop.var.name for loop in around], around[-1]
    outer = next(n for n, loop in enumerate(around, 1) if isinstance(loop.body, Seq))
    every, held = list(blocks(nest)), list(allocations(nest))
    copies = {_written(b): b for b in every if _is_copy(b, held)}
    room = s.target.shared_bytes if s.target else 0
    staged = set(allocations(steps))
    doubled = sum(_bytes(copy) * (2 if copy in staged else 1) for copy in copies)
    default = 2 if doubled <= room else 1
    why = "two if a block has room for them"
    stages = knobs.choice(knob, _STAGES, default=default, why=why)
    for buffer in held:
        s.set_scope(buffer.name, "shared")
        if buffer not in copies:
            s.transform_layout(buffer.name, _layout(buffer))
    for buffer, block in copies.items():
        _staged(s, block, buffer)
    for block in every:
        inner = [loop for loop in s.loops(block.name) if loop not in names]
        if _is_product(block):
            _multiplied(s, block, inner, _ways(block, copies))
        elif block not in copies.values():
            _distributed(s, block, inner)
    bind_blocks(s, names[:outer])
    if stages > 1:
        s.pipeline(steps.var.name, stages)


def _update(block: Block) -> Store | Reduce:
    """The last store or reduction of a block."""
    below = walk_statements(block.body)
    return [stmt for stmt in below if isinstance(stmt, Store | Reduce)][-1]


def _written(block: Block) -> Buffer:
    """What a block writes last."""
    update = _update(block)
    return update.buffers[0] if isinstance(update, Reduce) else update.buffer


def _is_copy(block: Block, held: Collection[Buffer]) -> bool:
    """Whether a block copies rows of an array to what a tile of it holds."""
    update, made = _update(block), _written(block)
    value = update.value if isinstance(update, Store) else None
    if not isinstance(value, Load) or value.buffer in held or made not in held:
        return False
    return value.indices[-1] == block.axes[-1].var


def _is_product(block: Block) -> bool:
    """Whether a block adds products of two operands."""
    update = _update(block)
    if not isinstance(update, Reduce) or _shape(_written(block))[-1] == QUAD:
        return False
    return len(set(nodes_of(update.values[0], Load))) == _OPERANDS


def _shape(buffer: Buffer) -> tuple[int, ...]:
    """The sizes of a temporary, which are known."""
    known = [size.value for size in buffer.shape if isinstance(size, Const)]
    assert len(known) == len(buffer.shape)
    return tuple(map(int, known))


def _bytes(buffer: Buffer) -> int:
    """The bytes of a temporary."""
    return prod(_shape(buffer)) * buffer.dtype.bits // 8


def _lanes(buffer: Buffer) -> Lanes:
    """Whole rows for each warp."""
    rows, columns = _shape(buffer)
    return Lanes((rows, columns), (_WARPS, 1))


def _layout(buffer: Buffer) -> str:
    """The layout of fragments, or of what belongs to their rows."""
    lanes = _lanes(buffer)
    return row_layout(lanes) if _shape(buffer)[-1] == QUAD else fragment_layout(lanes)


def _ways(block: Block, copies: Collection[Buffer]) -> list[str]:
    """How a product takes operands: those that are no copies are in registers."""
    first, second = nodes_of(_update(block).values[0], Load)  # type: ignore[union-attr]
    turned = second.indices[0] == block.axes[-1].var
    return ["" if first.buffer in copies else "_ar", "_bt" if turned else ""]


def _staged(s: Schedule, block: Block, buffer: Buffer) -> None:
    """A copy in shared memory, by all threads that have a part of it."""
    rows, columns = _shape(buffer)
    chunk = FORMS[buffer.dtype.name].chunk
    given = {"threads": min(_WARPS * WARP, rows * columns // chunk), "chunk": chunk}
    staged_rows(s, block.name, buffer.name, swizzled(columns, chunk), **given)


def _multiplied(
    s: Schedule, block: Block, inner: Sequence[str], ways: Sequence[str]
) -> None:
    """A product of fragments."""
    lanes = _lanes(_written(block))
    form = FORMS[s.function.buffers[0].dtype.name]
    row, column, step = inner
    if block.init is None:
        lanes.share(s, s.decompose_reduction(block.name, row))
    i, j = s.split(row, lanes.split(0)), s.split(column, lanes.split(1))
    k, *ks = s.split(step, [None, form.step])
    threads, own = lanes.order(i, j)
    s.reorder(*threads, k, *own, *ks)
    bind_threads(s, threads, [k, *own[:2]])
    s.tensorize(own[2], form.instruction(ways, swapped=False))


def _distributed(s: Schedule, block: Block, inner: Sequence[str]) -> None:
    """Distribute a block over the threads that have its elements."""
    row, column, *folded = inner
    rows, columns = extent(s, row) or 0, extent(s, column) or 0
    lanes = Lanes((rows, columns), (_WARPS, 1))
    if columns != QUAD:
        lanes.share(s, block.name)
    elif len(folded) == 1:
        _of_rows(s, lanes, inner)
        update = _update(block)
        assert isinstance(update, Reduce)
        s.tensorize(folded[0], f"quad_{update.reducer.name}")
    else:
        if folded and block.init is None:
            init = s.decompose_reduction(block.name, row)
            _of_rows(s, lanes, s.loops(init)[-2:])
        _of_rows(s, lanes, inner)
        for loop in folded:
            s.unroll(loop)


def _of_rows(s: Schedule, lanes: Lanes, inner: Sequence[str]) -> None:
    """Distribute what belongs to rows over the lanes that share them."""
    row, lane, *folded = inner
    i = s.split(row, lanes.split(0))
    threads, own = [i[0], i[3], lane], [i[1], i[2]]
    s.reorder(*threads, *own, *folded)
    bind_threads(s, threads, own)
