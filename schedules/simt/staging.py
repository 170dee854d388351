"""Operands in shared memory: who copies what, and where it lies there.

Threads read 16 bytes at once: four neighbours of their `own` rows (or columns). So
fours lie by thread: first the first fours of all, then the second ones. That eight
threads which read at once meet in no bank, and 32 that write at once neither:

    copied along k (a thread: four steps)     the number of a four is exclusive-or'd
                                              with that of the four steps
    copied along rows (threads side by side)  second fours begin four fours later
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import log2
from typing import Final

from tensorlang.ir.nodes import Block, Const, Expr, Load, Var, as_expr
from tensorlang.ir.simplify import simplify
from tensorlang.ir.visit import allocations, blocks, substitute, walk
from tensorlang.schedules.cutting import fused
from tensorlang.scheduling import Schedule

WIDE: Final = 4  # numbers of one access
_LOOKED_AT: Final = 33  # neighbours
_FAR: Final = 1 << 20  # what stands for a size that is not known


@dataclass(frozen=True, slots=True)
class Staged:
    """One operand's tile: `size` rows (or columns) of `depth` steps.

    Attributes:
        size: Its rows, which threads share out.
        own: Of them, those of one thread.
        depth: Steps.
        threads: That copy it.
    """

    size: int
    own: int
    depth: int
    threads: int

    def stage(self, s: Schedule, copy: str, buffer: str, at: str) -> None:
        """Compute a gathering copy right inside of a loop, in shared memory."""
        block = next(b for b in blocks(s.function) if b.name == copy)
        along_steps, wide = lies_along_steps(block), lies_along_rows(block)
        s.compute_at(copy, at)
        s.set_scope(buffer, "shared")
        ndim = next(b.ndim for b in allocations(s.function) if b.name == buffer)
        self.lay(s, buffer, ndim, along_steps=along_steps)
        rows, steps = s.loops(copy)[-2:]
        if along_steps:
            self.by_steps(s, rows, steps)
        else:
            self.by_rows(s, rows, steps, WIDE if wide else 1)

    def by_steps(self, s: Schedule, rows: str, steps: str) -> None:
        """Four steps of a row to a thread, its other ones to its neighbours."""
        whole = fused(s, (rows, steps))
        turn, thread, lane = s.split(whole, [None, self.threads, WIDE])
        s.reorder(thread, turn, lane)
        s.bind(thread, "thread.x")
        s.unroll(turn)
        s.vectorize(lane)

    def by_rows(self, s: Schedule, rows: str, steps: str, lanes: int) -> None:
        """Neighbouring rows of one step to neighbouring threads."""
        row, lane = s.split(rows, [None, lanes])
        turn, step = s.split(steps, [None, self.threads * lanes // self.size])
        s.reorder(step, row, turn, lane)
        s.bind(fused(s, (step, row)), "thread.x")
        s.unroll(turn)
        s.vectorize(lane)

    def lay(self, s: Schedule, buffer: str, ndim: int, *, along_steps: bool) -> None:
        """Lay the tile out, as told above."""
        batch = [f"b{n}" for n in range(ndim - 2)]
        four, half = f"i // {self.own}", f"i // {WIDE} % {self.own // WIDE}"
        fours, halves = self.size // self.own, self.own // WIDE
        if along_steps:
            low = 3 - round(log2(self.depth // WIDE))
            turn = f"k // {WIDE} % {min(self.depth // WIDE, 8)} * {2 ** max(low, 0)}"
            own = f" ^ {half} * {2 ** (low - 1)}" if low > 0 and halves > 1 else ""
            four, pitch = f"({four} + {half} * {fours} ^ {turn}{own})", self.size
        else:
            gap = WIDE if halves > 1 else 0
            four = f"({four} + {half} * {fours + gap})"
            pitch = (fours * halves + gap * (halves - 1)) * WIDE
        place = f"k * {pitch} + {four} * {WIDE} + i % {WIDE}"
        names = ", ".join((*batch, "i", "k"))
        s.transform_layout(buffer, f"lambda {names}: ({place},)")


def lies_along_steps(block: Block) -> bool:
    """Whether what a copy gathers has its longest runs of neighbours along steps."""
    (load,) = {n for n in walk(block.body) if isinstance(n, Load)}
    *_, row, step = (axis.var for axis in block.axes)
    others = {axis.var for axis in block.axes}
    return _run(load, step, others) >= _run(load, row, others)


def lies_along_rows(block: Block) -> bool:
    """Whether rows are plainly neighbours, so that several are read at once."""
    (load,) = {n for n in walk(block.body) if isinstance(n, Load)}
    return load.indices[-1] == block.axes[-2].var


def _run(load: Load, axis: Var, axes: AbstractSet[Var]) -> int:
    """How many neighbours follow each other along an axis, from its start.

    The other axes are at theirs, and sizes are large: what a padded copy may not read
    beyond, `min(i, n - 1)`, is far away.
    """
    index = substitute(
        _flat(load),
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


def _value(index: Expr, axis: Var, at: int) -> int:
    found = simplify(substitute(index, {axis: as_expr(at)}))
    return int(found.value) if isinstance(found, Const) else -1
