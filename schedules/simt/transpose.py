"""Transposing copies: square tiles through shared memory.

    y[i, j] = x[j, i]    ->    for i_0, j_0 in bound(.., "block.x"):
                                   x_shared = alloc(f32[32, 32])     # rows of 33
                                   x_shared[j, i] = x[j, i]
                                   y[i, j] = x_shared[j, i]

Neighbouring threads read neighbours of `x`, and write neighbours of `y`. Rows of the
tile are padded by one word: the elements of a column are in different banks.
"""

from __future__ import annotations

from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.ir.nodes import For, Load
from tensorlang.schedules.stages import Stage, extent_of
from tensorlang.schedules.tiling import fused
from tensorlang.scheduling import Knobs, Schedule

_SIDE: Final = 32  # of a square: a warp
_ROWS: Final = (4, 8, 16, 32)  # rows of the square processed at once
_SHORT: Final = 8  # rows up to this length are read without a tile


@frozen
class _TransposedLoad:
    """A load contiguous along `far`, while the result is contiguous along `near`."""

    load: Load
    near: For
    far: For


def transposed(s: Schedule, knobs: Knobs, stage: Stage) -> None:
    """Transpose in square tiles an operand contiguous along another loop."""
    found = _transposed_load(stage)
    rows = knobs.choice("square_rows", _ROWS, default=8)
    near, far = found.near.var.name, found.far.var.name
    others = [x.var.name for x in stage.loops if x not in (found.near, found.far)]
    far_0, far_1 = s.split(far, [None, _SIDE])
    near_0, near_1 = s.split(near, [None, _SIDE])
    s.reorder(*others, far_0, near_0, far_1, near_1)
    copy, square = s.cache_read(stage.name, found.load.buffer.name, "shared", at=near_0)
    row = found.load.indices.index(stage.axis(found.near))
    _pad(s, square, row, found.load.buffer.ndim)
    _threads(s, list(s.loops(copy)[-2:]), rows)
    _threads(s, [far_1, near_1], rows)
    s.bind(fused(s, [*others, far_0, near_0]), "block.x")


def _transposed_load(stage: Stage) -> _TransposedLoad:
    """The only load that is transposed with respect to the result."""
    update = stage.update
    loops = {stage.axis(loop): loop for loop in stage.loops}
    near = loops.get(update.indices[-1]) if update.indices else None  # type: ignore[call-overload]
    across = [
        (load, far)
        for load in stage.loads
        if load.indices and near is not None
        for far in [loops.get(load.indices[-1])]  # type: ignore[call-overload]
        if far is not None and far is not near
        if stage.axis(near) in load.indices
    ]
    if len(across) != 1 or near is None or stage.driven("reduction"):
        raise ScheduleError(f"{stage.name} has no transposed operand")
    load, far = across[0]
    sizes = [extent_of(loop) for loop in (near, far)]
    if any(size is not None and size <= _SHORT for size in sizes):
        raise ScheduleError(f"{stage.name} has short rows")
    return _TransposedLoad(load, near, far)


def _pad(s: Schedule, square: str, row: int, ndim: int) -> None:
    """Pad the rows of a square so that they start in different banks."""
    dims = [f"d{n}" for n in range(ndim)]
    place = f"{dims[row]} * {_SIDE + 1} + {dims[-1]}"
    s.transform_layout(square, f"lambda {', '.join(dims)}: ({place},)")


def _threads(s: Schedule, square: list[str], rows: int) -> None:
    """Distribute a square's rows over groups of threads, several iterations each."""
    row, column = square
    step, thread = s.split(row, [None, rows])
    s.reorder(thread, column, step)
    s.bind(thread, "thread.y")
    s.bind(column, "thread.x")
    s.unroll(step)
