"""Transposing copies: square tiles through shared memory.

    y[i, j] = x[j, i]    ->    for i_0, j_0 in bound(.., "block.x"):
                                   x_shared = alloc(f32[32, 32])     # rows of 33
                                   x_shared[j, i] = x[j, i]
                                   y[i, j] = x_shared[j, i]

Neighbouring threads read neighbours of `x`, and write neighbours of `y`. Rows of the
tile are padded by one word: the elements of a column are in different banks.

Where both sizes are multiples of a larger square, a thread reads and writes several
elements at once, and no element has a condition.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.ir.contents import blocks
from tensorlang.ir.nodes import Const, For, Load
from tensorlang.schedules.generic import stage_named
from tensorlang.schedules.stages import Stage, extent_of
from tensorlang.schedules.tiling import fused
from tensorlang.scheduling import Knobs, Schedule

_SIDE: Final = 32  # of a square: a warp
_ROWS: Final = (4, 8, 16, 32)  # rows of the square processed at once
_WHOLE_SIDES: Final = (32, 64, 128)  # of squares that are whole
_WHOLE_THREADS: Final = (128, 256, 512)
_ACCESS_BITS: Final = 128  # of one access by a thread
_TOGETHER: Final = 8  # such accesses to shared memory that are served together
_SHORT: Final = 8  # rows up to this length are read without a tile


@frozen
class _TransposedLoad:
    """A load contiguous along `far`, while the result is contiguous along `near`."""

    load: Load
    near: For
    far: For


@frozen
class _Square:
    """A tile, and how a block's threads process it."""

    side: int
    rows: int  # processed at once, by threads
    across: int  # threads along a row
    lanes: int  # neighbouring elements of a thread


def transposed(s: Schedule, knobs: Knobs, stage: Stage) -> None:
    """Transpose in square tiles an operand contiguous along another loop."""
    found = _transposed_load(stage)
    rows = knobs.choice("square_rows", _ROWS, default=8)
    side = knobs.choice("whole_side", _WHOLE_SIDES, default=64)
    threads = knobs.choice("whole_threads", _WHOLE_THREADS, default=256)
    lanes = max(_ACCESS_BITS // max(found.load.dtype.bits, 8), 1)
    across = min(_TOGETHER, side // lanes)
    whole = _Square(side, min(threads // across, side), across, lanes)
    ragged = _Square(_SIDE, rows, _SIDE, 1)
    for name, square in _cases(s, stage, found, whole, ragged).items():
        case = stage if name == stage.name else stage_named(s, name)
        if case is not None:
            _in_squares(s, case, square)


def _cases(
    s: Schedule, stage: Stage, found: _TransposedLoad, whole: _Square, ragged: _Square
) -> dict[str, _Square]:
    """The blocks of the cases that the sizes decide, and the square of each."""
    extents = [loop.extent for loop in (found.near, found.far)]
    if any(isinstance(n, Const) and int(n.value) % whole.side for n in extents):
        return {stage.name: ragged}
    tests = [(n % whole.side).equal(0) for n in extents if not isinstance(n, Const)]
    known = {block.name for block in blocks(s.function)}
    if tests:
        s.specialize(stage.loops[0].var.name, reduce(and_, tests))
    rest = (block.name for block in blocks(s.function) if block.name not in known)
    return {stage.name: whole} | dict.fromkeys(rest, ragged)


def _in_squares(s: Schedule, stage: Stage, square: _Square) -> None:
    found = _transposed_load(stage)
    near, far = found.near.var.name, found.far.var.name
    others = [x.var.name for x in stage.loops if x not in (found.near, found.far)]
    far_0, far_1 = s.split(far, [None, square.side])
    near_0, near_1 = s.split(near, [None, square.side])
    s.reorder(*others, far_0, near_0, far_1, near_1)
    copy, tile = s.cache_read(stage.name, found.load.buffer.name, "shared", at=near_0)
    row = found.load.indices.index(stage.axis(found.near))
    s.transform_layout(tile, _layout(square, row, found.load.buffer.ndim))
    _threads(s, list(s.loops(copy)[-2:]), square)
    _threads(s, [far_1, near_1], square)
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


def _layout(square: _Square, row: int, ndim: int) -> str:
    """The layout of a tile whose columns, and wide accesses, are in all banks.

    Rows are padded by a word; those of wide accesses permute these instead.
    """
    dims = [f"d{n}" for n in range(ndim)]
    r, c, side, lanes = dims[row], dims[-1], square.side, square.lanes
    place = f"{r} * {side + 1} + {c}"
    if lanes > 1:
        piece = f"({c} // {lanes} ^ {r} // {lanes} % {side // lanes})"
        place = f"{r} * {side} + {piece} * {lanes} + {c} % {lanes}"
    return f"lambda {', '.join(dims)}: ({place},)"


def _threads(s: Schedule, loops: list[str], square: _Square) -> None:
    """Distribute a tile over groups of threads, several iterations each."""
    row, column = loops
    steps, thread_y = s.split(row, [None, square.rows])
    more, thread_x, lane = s.split(column, [None, square.across, square.lanes])
    s.reorder(thread_y, thread_x, steps, more, lane)
    s.bind(thread_y, "thread.y")
    s.bind(thread_x, "thread.x")
    s.unroll(steps)
    s.unroll(more)
    s.vectorize(lane)
