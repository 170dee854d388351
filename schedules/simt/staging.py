"""Operands in shared memory: how threads copy them, and their layout.

Threads read 16 bytes at once: four steps of a row if the operand is contiguous along
steps (k is its last index) in global memory, otherwise four rows of a step. The layout
keeps that order. A thread's rows, or groups of four of them, are interleaved with those
of the other threads: the first ones of all threads, then the second ones. Reads and
writes are free of bank conflicts among eight threads: 16-byte parts of a row are
XOR-swizzled by its number, and second groups are offset.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any, Final

from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.ir.visit import rebuild, substitute, walk
from tensorlang.schedules.simt.register_tiles import WIDE
from tensorlang.schedules.tiling import fused
from tensorlang.scheduling import Schedule
from tensorlang.scheduling.analysis.tree import block_of, find_block, find_buffer

_BANKS: Final = 8  # 16-byte parts until the banks repeat
_LOOKED_AT: Final = 33  # neighbours
_FAR: Final = 1 << 20  # stands for an unknown size


@frozen
class Staged:
    """One operand's tile: `size` rows (or columns) of `depth` steps."""

    copy: str  # block that gathers it
    buffer: str  # buffer it is gathered into
    size: int  # its rows, distributed over threads
    own: int  # rows per thread
    depth: int  # steps
    threads: int  # threads that copy it
    along_steps: bool  # whether it is contiguous along steps in memory
    wide: bool  # whether it is contiguous along rows, so that several are read at once

    def stage(self, s: Schedule, at: str) -> None:
        """Gather the tile inside a loop, into shared memory."""
        s.compute_at(self.copy, at)
        s.set_scope(self.buffer, "shared")
        self.lay(s)
        rows, steps = s.loops(self.copy)[-2:]
        if self.along_steps:
            self.by_steps(s, rows, steps)
        else:
            self.by_rows(s, rows, steps, WIDE if self.wide else 1)

    def by_steps(self, s: Schedule, rows: str, steps: str) -> None:
        """Four steps of a row per thread, in the order of shared memory."""
        neighbour, own = s.split(rows, [None, self.own])
        s.reorder(own, neighbour, steps)
        whole = fused(s, (own, neighbour, steps))
        threads = min(self.threads, self.size * self.depth // WIDE)
        turn, thread, lane = s.split(whole, [None, threads, WIDE])
        s.reorder(thread, turn, lane)
        s.bind(thread, "thread.x")
        s.unroll(turn)
        s.vectorize(lane)

    def by_rows(self, s: Schedule, rows: str, steps: str, lanes: int) -> None:
        """Neighbouring rows of one step to neighbouring threads."""
        neighbours = min(self.size // lanes, self.threads)
        part, row, lane = s.split(rows, [None, neighbours, lanes])
        turn, step = s.split(steps, [None, self.threads // neighbours])
        s.reorder(step, row, turn, part, lane)
        s.bind(fused(s, (step, row)), "thread.x")
        s.unroll(turn)
        s.unroll(part)
        s.vectorize(lane)

    def lay(self, s: Schedule) -> None:
        """Apply the layout described above."""
        ndim = find_buffer(s.function, self.buffer).ndim
        names = ", ".join((*(f"b{n}" for n in range(ndim - 2)), "i", "k"))
        own, side = self.own, self.size // self.own
        if self.along_steps:
            parts = min(self.depth // WIDE, _BANKS)
            thread = f"i // {own} % {side}"
            part = f"(k // {WIDE} ^ {thread} // {_BANKS // parts} % {parts})"
            row = f"(i % {own} * {side} + {thread})"
            place = f"{row} * {self.depth} + {part} * {WIDE} + k % {WIDE}"
        else:
            fours = own // WIDE
            gap = 0 if fours == 1 else _BANKS // fours
            pitch = (self.size // WIDE + gap * (fours - 1)) * WIDE
            four = f"(i // {WIDE} % {fours} * {side + gap} + i // {own})"
            place = f"k * {pitch} + {four} * {WIDE} + i % {WIDE}"
        s.transform_layout(self.buffer, f"lambda {names}: ({place},)")


def memory_order(s: Schedule, copy: str, lanes: int = WIDE) -> tuple[bool, bool]:
    """Whether a gathered operand is contiguous along steps, and along rows."""
    block = block_of(find_block(s.function, copy))
    return contiguous_along_steps(block), contiguous_along_rows(block, lanes)


def contiguous_along_steps(block: ir.Block) -> bool:
    """Whether a gathered operand has its longest contiguous runs along steps."""
    load = gathered(block)
    row, step = _row_and_step(block)
    others = {axis.var for axis in block.axes}
    return _run(load, step, others) >= _run(load, row, others)


def contiguous_along_rows(block: ir.Block, lanes: int = WIDE) -> bool:
    """Whether `lanes` rows are contiguous, so that they are read at once.

    True as well of rows that are channels of pixels: `x[row // 256, row % 256]`.
    """
    load = gathered(block)
    row, _ = _row_and_step(block)
    *before, last = load.indices
    match last:
        case ir.Binary(op="floormod", a=inner, b=ir.Const(value=size)) if inner == row:
            return not int(size) % lanes and all(
                row not in free_vars(_of_chunks(index, row, lanes)) for index in before
            )
    return last == row and all(row not in free_vars(index) for index in before)


def _row_and_step(block: ir.Block) -> tuple[ir.Var, ir.Var]:
    """The axes of a copy's last two dimensions."""
    (store,) = (n for n in walk(block.body) if isinstance(n, ir.Store))
    row, step = store.indices[-2:]
    assert isinstance(row, ir.Var)
    assert isinstance(step, ir.Var)
    return row, step


def _of_chunks(index: ir.Expr, row: ir.Var, lanes: int) -> ir.Expr:
    """An index without terms that are equal for all rows read at once."""

    def visit(node: Any) -> Any:
        match node:
            case ir.Buffer():
                return node
            case ir.Binary(op="floordiv", a=inner, b=ir.Const(value=size)):
                if inner == row and not int(size) % lanes:
                    return ir.as_expr(0)
        return rebuild(node, visit)

    return visit(index)  # type: ignore[no-any-return]


def gathered(block: ir.Block) -> ir.Load:
    """A copy's only load, lets substituted, in terms of its axes."""
    named: dict[ir.Var, ir.Expr] = {}
    for node in walk(block.body):
        if isinstance(node, ir.Let):
            named[node.var] = substitute(node.value, named)
    (load,) = {n for n in walk(block.body) if isinstance(n, ir.Load)}
    return substitute(load, named)


def _run(load: ir.Load, axis: ir.Var, axes: AbstractSet[ir.Var]) -> int:
    """The length of the contiguous run along an axis, from its start.

    Other axes are zero and sizes are large: padded copies clamped by `min(i, n - 1)`
    are taken as unbounded, and images as having no edges.
    """
    index = substitute(
        _without_edges(_flat(load)),
        {
            v: ir.as_expr(0 if v in axes else _FAR)
            for v in _variables(load)
            if v != axis
        },
    )
    start, count = _value(index, axis, 0), 1
    while count < _LOOKED_AT and _value(index, axis, count) == start + count:
        count += 1
    return count


def _variables(load: ir.Load) -> set[ir.Var]:
    return {n for n in walk(load) if isinstance(n, ir.Var)}


def _flat(load: ir.Load) -> ir.Expr:
    """The linear index; dimensions of unknown extent count as large."""
    total: ir.Expr = ir.as_expr(0)
    for index, extent in zip(load.indices, load.buffer.shape, strict=True):
        size = extent if isinstance(extent, ir.Const) else ir.as_expr(_FAR)
        total = total * size + index
    return total


def _without_edges(index: ir.Expr) -> ir.Expr:
    """`min(max(i - 1, 0), 13)` as `i - 1`."""

    def visit(node: Any) -> Any:
        node = node if isinstance(node, ir.Buffer) else rebuild(node, visit)
        match node:
            case ir.Binary(op="min" | "max", a=inner, b=ir.Const()):
                return inner
        return node

    return visit(index)  # type: ignore[no-any-return]


def _value(index: ir.Expr, axis: ir.Var, at: int) -> int:
    found = simplify(substitute(index, {axis: ir.as_expr(at)}))
    return int(found.value) if isinstance(found, ir.Const) else -1
