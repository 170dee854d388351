"""Rows of dynamic length: long ones in vectors with a 2D grid, short ones flattened.

    for i in range(m):              if n >= 512:
        for j in range(n):              for i in bound(m, "block.x"):
            y[i, j] = x[i]    ->            for b in bound((n + 511) // 512, "block.y"):
                                                for t in bound(128, "thread.x"):
                                                    for v in vectorized(4): ..
                                    else:
                                        for b in bound((m * n + 255) // 256, "block.x"):
                                            for t in bound(256, "thread.x"): ..

The flat index of an element must be divided by the row length; long rows avoid it.
"""

from __future__ import annotations

from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.ir.contents import blocks, free_vars
from tensorlang.ir.nodes import Load, Store
from tensorlang.ir.visit import walk
from tensorlang.schedules.simt.grid import grid_knobs, per_thread
from tensorlang.schedules.stages import Stage, extent_of, is_elementwise
from tensorlang.schedules.tiling import fused
from tensorlang.scheduling import Knobs, Schedule

_THREADS: Final = (32, 64, 128, 256)
_MOST: Final = 65535  # blocks along y


def long_rows(s: Schedule, knobs: Knobs, stage: Stage) -> None:
    """Build one grid for long rows and one for short ones.

    Raises:
        ScheduleError: rows have static length, or are not contiguous.
    """
    *outer, along = [loop.var.name for loop in stage.loops]
    if not outer or not _is_contiguous(stage):
        raise ScheduleError(f"{stage.name} has no rows of unknown length")
    grid = grid_knobs(s, knobs, max(8 * b.dtype.bytes for b in stage.outputs))
    threads = knobs.choice("long_row_threads", _THREADS, default=128)
    known = {block.name for block in blocks(s.function)}
    length, piece = stage.loops[-1].extent, threads * grid.lanes
    s.specialize(outer[0], (length >= piece) & (length <= _MOST * piece))
    short = next(b.name for b in blocks(s.function) if b.name not in known)
    per_thread(s, s.loops(short), grid.threads)
    pieces, thread, lane = s.split(along, [None, threads, grid.lanes])
    s.bind(fused(s, outer), "block.x")
    s.bind(pieces, "block.y")
    s.bind(thread, "thread.x")
    if grid.lanes > 1:
        s.vectorize(lane)


def _is_contiguous(stage: Stage) -> bool:
    """Whether all accesses along the innermost, dynamic loop are contiguous."""
    axis = stage.axis(stage.loops[-1])
    places = [n for n in walk(stage.block.body) if isinstance(n, Load | Store)]
    return (
        extent_of(stage.loops[-1]) is None
        and not is_elementwise(stage)
        and all(
            n.mask is None
            and (not n.indices or n.indices[-1] == axis or axis not in free_vars(n))
            for n in places
        )
    )
