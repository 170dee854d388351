"""Loops over independent elements, distributed over blocks of threads.

    for i in range(n):      ->      for i_0 in bound((n + 1023) // 1024, "block.x"):
                                        for i_1 in bound(256, "thread.x"):
                                            for i_2 in vectorized(4):

Each block does a fixed number of elements, so the grid scales with the array.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from tensorlang.frozen import frozen
from tensorlang.ir.nodes import Const
from tensorlang.schedules.streaming import loop_named
from tensorlang.schedules.tiling import extent, fused
from tensorlang.scheduling import Knobs, Schedule

THREADS: Final = (32, 64, 128, 256, 512)
LANES: Final = (1, 2, 4, 8, 16)
STEPS: Final = (1, 2, 4, 8, 16, 32)
_FILLED: Final = 0.9  # minimum fraction of active threads
GROUPS: Final = (4, 8, 16, 32, 64)  # consecutive blocks of columns
_ACCESS_BITS: Final = 128  # of one access by a thread
_TOGETHER: Final = 32  # elements that a thread processes at once


@frozen
class Grid:
    """How elements are distributed."""

    threads: int  # threads of a block
    steps: int  # iterations of a block
    lanes: int  # neighbouring elements that one thread processes at once

    @property
    def elements(self) -> int:
        """Elements of one block."""
        return self.threads * self.steps * self.lanes


def grid_knobs(s: Schedule, knobs: Knobs, bits: int, steps: int = 1) -> Grid:
    """The knobs of a grid for elements of `bits` bits: each thread moves a vector.

    `steps` is the default number of iterations of a block.
    """
    whole = s.target.vector_bits if s.target else _ACCESS_BITS
    lanes = max(min(whole // max(bits, 8), LANES[-1]), 1)
    return Grid(
        knobs.choice("threads", THREADS, default=256),
        knobs.choice("steps", STEPS, default=steps),
        knobs.choice(
            "lanes", LANES, default=lanes, why=f"one access moves {whole} bits"
        ),
    )


def distribute(
    s: Schedule, loops: Sequence[str], grid: Grid, *, digits: bool = False
) -> str:
    """Bind perfectly nested loops, fused, to blocks and threads.

    Args:
        loops: The loops, outermost first.
        grid: How their elements are distributed.
        digits: Whether addresses depend on the individual loops: a block then covers
            elements of inner loops only, if those suffice.

    Returns:
        The innermost loop left to one thread, or the loop over threads.
    """
    around, whole = _outer_and_inner(s, loops, grid.elements if digits else 0)
    count = extent(s, whole)
    threads, lanes = grid.threads, grid.lanes
    if count is not None and count < grid.elements:
        lanes = lanes if count >= threads * lanes else 1
        threads = min(threads, _rounded(count))
        blocks, thread, lane = s.split(whole, [None, threads, lanes])
    else:
        steps = grid.steps
        blocks, step, thread, lane = s.split(whole, [None, steps, threads, lanes])
        if (
            steps > 1 and steps * lanes <= _TOGETHER
        ):  # issue all loads before the first use
            s.reorder(thread, step, lane)
            lane, lanes = s.fuse(step, lane), steps * lanes
    s.bind(fused(s, [*around, blocks]), "block.x")
    s.bind(thread, "thread.x")
    if lanes > 1:
        s.vectorize(lane)
    return lane


def _rounded(count: int) -> int:
    """Threads for a few elements, rounded up to whole warps."""
    return max(-(-count // 32) * 32, 32)


def per_thread(s: Schedule, loops: Sequence[str], threads: int) -> str:
    """Fuse and bind perfectly nested loops, one element per thread; the thread loop."""
    around, whole = _outer_and_inner(s, loops, threads)
    count = extent(s, whole)
    if count is not None:
        threads = min(threads, _rounded(count))
    blocks, thread = s.split(whole, [None, threads])
    s.bind(fused(s, [*around, blocks]), "block.x")
    s.bind(thread, "thread.x")
    return thread


def _outer_and_inner(
    s: Schedule, loops: Sequence[str], elements: int
) -> tuple[tuple[str, ...], str]:
    """Split loops into outer ones for blocks only, and inner ones, fused.

    Element counts of dynamically sized arrays take 64 bits, in which a division takes
    dozens of instructions; those of a few static inner loops do not. The inner loops
    must fill their blocks.
    """
    sizes = [extent(s, loop) for loop in loops]
    varying = elements > 0 and None in sizes
    for cut in reversed(range(1, len(loops))) if varying else ():
        inner = [size for size in sizes[cut:] if size is not None]
        count = prod(inner) if len(inner) == len(loops) - cut else 0
        filled = -(-count // elements) * elements
        if 0 < filled * _FILLED <= count:
            return tuple(loops[:cut]), fused(s, loops[cut:])
    return (), fused(s, loops)


def is_empty(s: Schedule, loop: str) -> bool:
    """Whether a loop never runs."""
    found = loop_named(s, loop).extent
    return isinstance(found, Const) and found.value <= 0


def neighbouring(s: Schedule, blocks: str, group: int) -> list[str]:
    """Split the loop over blocks of columns into groups and the blocks within a group.

    With the rows between the two, concurrent blocks read few columns and few rows,
    which stay in the cache. The loop stays whole if it has at most `group` iterations,
    or if no number from `group // 4` to `group` divides it.
    """
    count = extent(s, blocks)
    sizes = range(group, max(group // 4, 2) - 1, -1)
    size = next((n for n in sizes if count is not None and count % n == 0), None)
    if count is None or count <= group or size is None:
        return [blocks]
    return list(s.split(blocks, [None, size]))
