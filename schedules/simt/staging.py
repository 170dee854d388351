"""Operands in shared memory: who copies what, and where it lies there.

Threads read 16 bytes at once: what lies along steps in memory (k is its last index)
lies so here, too, and they are four steps of a row; else they are four rows of a step.
Rows, or fours of them, of which each thread has one lie side by side: the first ones of
all threads, then the second ones. Eight threads meet in no bank, whether they read or
write: parts of a row are exclusive-or'd with its number, and second fours begin later.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

from tensorlang.ir.contents import allocations, blocks, free_vars
from tensorlang.ir.nodes import (
    Binary,
    Block,
    Buffer,
    Const,
    Expr,
    Let,
    Load,
    Store,
    Var,
    as_expr,
)
from tensorlang.ir.simplify import simplify
from tensorlang.ir.visit import rebuild, substitute, walk
from tensorlang.schedules.simt.register_tiles import WIDE
from tensorlang.schedules.tiling import fused
from tensorlang.scheduling import Schedule

_BANKS: Final = 8  # parts of 16 bytes before the banks begin again
_LOOKED_AT: Final = 33  # neighbours
_FAR: Final = 1 << 20  # what stands for a size that is not known


@dataclass(frozen=True, slots=True)
class Staged:
    """One operand's tile: `size` rows (or columns) of `depth` steps.

    Attributes:
        copy: The block that gathers it.
        buffer: What that makes.
        size: Its rows, which threads share out.
        own: Of them, those of one thread.
        depth: Steps.
        threads: That copy it.
        along_steps: Whether it lies along steps in memory.
        wide: Whether it lies along rows, such that several are read at once.
    """

    copy: str
    buffer: str
    size: int
    own: int
    depth: int
    threads: int
    along_steps: bool
    wide: bool

    def stage(self, s: Schedule, at: str) -> None:
        """Gather it right inside of a loop, in shared memory."""
        s.compute_at(self.copy, at)
        s.set_scope(self.buffer, "shared")
        self.lay(s)
        rows, steps = s.loops(self.copy)[-2:]
        if self.along_steps:
            self.by_steps(s, rows, steps)
        else:
            self.by_rows(s, rows, steps, WIDE if self.wide else 1)

    def by_steps(self, s: Schedule, rows: str, steps: str) -> None:
        """Four steps of a row to a thread, as they lie in shared memory."""
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
        """Lay the tile out, as told above."""
        found = (b for b in allocations(s.function) if b.name == self.buffer)
        ndim = next(found).ndim
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


def lies(s: Schedule, copy: str, lanes: int = WIDE) -> tuple[bool, bool]:
    """Whether what a block gathers lies along steps; whether along rows, and wide."""
    block = next(b for b in blocks(s.function) if b.name == copy)
    return lies_along_steps(block), lies_along_rows(block, lanes)


def lies_along_steps(block: Block) -> bool:
    """Whether what a copy gathers has its longest runs of neighbours along steps."""
    load = gathered(block)
    row, step = _row_and_step(block)
    others = {axis.var for axis in block.axes}
    return _run(load, step, others) >= _run(load, row, others)


def lies_along_rows(block: Block, lanes: int = WIDE) -> bool:
    """Whether rows are plainly neighbours, so that `lanes` of them are read at once.

    They are, too, where they are channels of pixels: `x[row // 256, row % 256]`.
    """
    load = gathered(block)
    row, _ = _row_and_step(block)
    *before, last = load.indices
    match last:
        case Binary(op="floormod", a=inner, b=Const(value=size)) if inner == row:
            return not int(size) % lanes and all(
                row not in free_vars(_of_chunks(index, row, lanes)) for index in before
            )
    return last == row and all(row not in free_vars(index) for index in before)


def _row_and_step(block: Block) -> tuple[Var, Var]:
    """The axes of the last two dimensions of what a copy makes."""
    (store,) = (n for n in walk(block.body) if isinstance(n, Store))
    row, step = store.indices[-2:]
    assert isinstance(row, Var)
    assert isinstance(step, Var)
    return row, step


def _of_chunks(index: Expr, row: Var, lanes: int) -> Expr:
    """An index without what is the same for all rows that are read at once."""

    def visit(node: Any) -> Any:
        match node:
            case Buffer():
                return node
            case Binary(op="floordiv", a=inner, b=Const(value=size)):
                if inner == row and not int(size) % lanes:
                    return as_expr(0)
        return rebuild(node, visit)

    return visit(index)  # type: ignore[no-any-return]


def gathered(block: Block) -> Load:
    """The one place that a copy reads, by its axes alone."""
    named: dict[Var, Expr] = {}
    for node in walk(block.body):
        if isinstance(node, Let):
            named[node.var] = substitute(node.value, named)
    (load,) = {n for n in walk(block.body) if isinstance(n, Load)}
    return substitute(load, named)


def _run(load: Load, axis: Var, axes: AbstractSet[Var]) -> int:
    """How many neighbours follow each other along an axis, from its start.

    The other axes are at theirs, and sizes are large: what a padded copy may not read
    beyond, `min(i, n - 1)`, is far away, and images have no edges.
    """
    index = substitute(
        _without_edges(_flat(load)),
        {v: as_expr(0 if v in axes else _FAR) for v in _variables(load) if v != axis},
    )
    start, count = _value(index, axis, 0), 1
    while count < _LOOKED_AT and _value(index, axis, count) == start + count:
        count += 1
    return count


def _variables(load: Load) -> set[Var]:
    return {n for n in walk(load) if isinstance(n, Var)}


def _flat(load: Load) -> Expr:
    """The index in memory; dimensions of unknown extent count as far apart."""
    total: Expr = as_expr(0)
    for index, extent in zip(load.indices, load.buffer.shape, strict=True):
        size = extent if isinstance(extent, Const) else as_expr(_FAR)
        total = total * size + index
    return total


def _without_edges(index: Expr) -> Expr:
    """`min(max(i - 1, 0), 13)` as `i - 1`."""

    def visit(node: Any) -> Any:
        node = node if isinstance(node, Buffer) else rebuild(node, visit)
        match node:
            case Binary(op="min" | "max", a=inner, b=Const()):
                return inner
        return node

    return visit(index)  # type: ignore[no-any-return]


def _value(index: Expr, axis: Var, at: int) -> int:
    found = simplify(substitute(index, {axis: as_expr(at)}))
    return int(found.value) if isinstance(found, Const) else -1
