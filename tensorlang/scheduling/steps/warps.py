"""Warp-level `tensorize`: replace loops of lanes by an instruction of the whole warp.

Every thread of a loop over `thread.x` reduces its own elements; if the 32 lanes of a
warp together reduce a tile just as the instruction does, they may use it. The
distribution of elements is checked exhaustively, for all threads and inner iterations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.ir.collectives import WARP
from tensorlang.ir.contents import free_vars
from tensorlang.ir.dtypes import i64
from tensorlang.ir.integers.bounds import counted
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.integers.polynomials import Poly
from tensorlang.ir.nodes import Axis, Block, Buffer, Const, Expr, For, Stmt, Var, seq
from tensorlang.ir.semantics import evaluate
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.ir.visit import fresh, substitute
from tensorlang.scheduling.analysis.coverage import guards_of
from tensorlang.scheduling.analysis.legality import legality
from tensorlang.scheduling.intrinsics.operands import Operand, placed
from tensorlang.scheduling.intrinsics.tensor import TensorIntrinsic

THREADS = "thread.x"


@frozen
class Lanes:
    """A block in the loops of one thread."""

    threads: For  # loop over threads
    loops: tuple[For, ...]  # loops of the tile, inside it
    block: Block

    @property
    def moving(self) -> frozenset[Var]:
        """The variables that distinguish the elements of a tile."""
        return frozenset(loop.var for loop in (self.threads, *self.loops))

    def value(self, index: Expr) -> Expr:
        """An index of the block in terms of loop variables."""
        return substitute(index, {axis.var: axis.value for axis in self.block.axes})

    def grid(self) -> dict[Var, np.ndarray]:
        """Every combination of thread and iteration: arrays of one shape."""
        loops = (self.threads, *self.loops)
        shape = [int(loop.extent.value) for loop in loops]  # type: ignore[attr-defined]
        grids = np.indices(shape, np.int64)
        return {loop.var: grid for loop, grid in zip(loops, grids, strict=True)}

    def offsets(self, index: Expr) -> np.ndarray | None:
        """The movement of an index within the tile: (threads, iterations..), or None.

        Relative to its value at the first lane of each warp and the first iterations.
        """
        moving = self._moving(index)
        if moving is None:
            return None
        values = np.broadcast_to(evaluate(moving.expr(), self.grid()), self._shape())
        first = values[(slice(None), *[slice(0, 1)] * len(self.loops))]
        count = len(values)
        moved: np.ndarray = values - first[np.arange(count) // WARP * WARP]
        return moved

    def origin(self, index: Expr) -> Expr:
        """An index at the first lane of the warp and the first iterations."""
        zero: dict[Var, Expr] = {loop.var: Const(0, i64) for loop in self.loops}
        thread = self.threads.var
        warps = int(self.threads.extent.value) // WARP  # type: ignore[attr-defined]
        zero[thread] = thread // WARP * WARP if warps > 1 else Const(0, i64)
        form, ranges = Poly(), {thread: counted(self.threads.extent)}
        for atom, factor in linear(self.value(index)).terms:
            new = substitute(atom, zero) if free_vars(atom) & self.moving else atom
            form = form + linear(simplify(new, ranges)).scaled(factor)
        return form.shifted(linear(self.value(index)).constant).expr()

    def _shape(self) -> tuple[int, ...]:
        loops = (self.threads, *self.loops)
        return tuple(int(loop.extent.value) for loop in loops)  # type: ignore[attr-defined]

    def _moving(self, index: Expr) -> Poly | None:
        """The terms that move in the tile; None if some also depend on other loops."""
        form = linear(self.value(index))
        moving = form.only(lambda atom: bool(free_vars(atom) & self.moving))
        return moving if moving.vars <= self.moving else None


@legality("all lanes of a warp reach its instruction")
def whole_warps(tile: Lanes, around: Sequence[For]) -> str | None:
    """Threads form whole warps, and control flow is uniform across their lanes."""
    name, thread = tile.block.name, tile.threads
    extent = thread.extent.value if isinstance(thread.extent, Const) else 1
    if int(extent) % WARP:
        return f"loop {thread.var.name!r} has {thread.extent!r} threads: no whole warps"
    for loop in around:
        if thread.var in free_vars(loop.extent):
            return f"loop {loop.var.name!r} runs differently often from lane to lane"
        if loop.kind == "bound" and loop.thread in ("thread.y", "thread.z"):
            return (
                f"block {name!r} is under {loop.thread}: fuse the loops over threads "
                "and bind them to thread.x"
            )
    for cond in guards_of(tile.block):
        if free_vars(tile.value(cond)) & tile.moving:
            return (
                f"block {name!r} runs only where {cond!r}: pad its axes, so that no "
                "lane is left out"
            )
    return None


@legality("each lane reduces its own elements of the instruction")
def same_places(meaning: Lanes, tile: Lanes, index: Expr, wanted: Expr) -> str | None:
    """An index moves through the tile like the instruction's, for every lane."""
    found, own = tile.offsets(index), meaning.offsets(wanted)
    assert own is not None
    if found is not None and found.shape[1:] == own.shape[1:]:
        lanes = np.arange(len(found)) % WARP
        if (found == own[lanes]).all():
            return None
    return (
        f"block {tile.block.name!r} goes by {index!r} = {tile.value(index)!r}, and the "
        f"lanes of the instruction by {meaning.value(wanted)!r}; split, reorder and "
        "fuse its loops to that"
    )


def warp_block(
    entry: TensorIntrinsic,
    tile: Lanes,
    places: Mapping[Buffer, Operand],
    taken: set[str],
) -> Stmt:
    """The block with the instruction, run once by every lane of the warp."""
    lane = Var(fresh("lane", taken), i64)
    axes = tuple(
        dataclasses.replace(axis, value=tile.origin(axis.var))
        for axis in tile.block.axes
    )
    own = Axis(lane, "spatial", Const(WARP, i64), tile.threads.var % WARP)
    loop = entry.implementation.body
    assert isinstance(loop, For)
    body = placed(loop.body, places, {loop.var: lane}, taken)
    return dataclasses.replace(tile.block, axes=(*axes, own), body=body, init=seq())


def lanes_of(block: Block, loops: Sequence[For], around: Sequence[For]) -> Lanes:
    """The tile of a block in a loop over threads; ScheduleError if it is none."""
    threads = [loop for loop in around if loop.thread == THREADS]
    if not threads:
        raise ScheduleError(
            f"block {block.name!r} is in no loop over {THREADS}: bind the loops over "
            "its lanes first"
        )
    return Lanes(threads[0], tuple(loops), block)
