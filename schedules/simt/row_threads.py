"""Threads along rows: their number, access width, and rows per block."""

from __future__ import annotations

from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.schedules.tiling import extent
from tensorlang.scheduling import Knobs, Schedule

THREADS: Final = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
ROWS: Final = (1, 2, 4, 8, 16, 32)
_WIDE: Final = (1, 2, 4, 8, 16)
_ACCESS_BITS: Final = 128
_EACH: Final = 16  # elements of a row per thread, where there are enough
_USUAL: Final = 128  # minimum number of threads per block
_MOST: Final = 1024
_UNKNOWN: Final = 128  # threads per row of dynamic length
_STEPS: Final = 2  # loads in flight per thread if the length is dynamic
_WRITTEN_OUT: Final = 64  # elements per thread if the length is dynamic


@frozen
class RowThreads:
    """How a row is distributed."""

    length: int | None  # length of the row, if static
    threads: int  # threads per row
    rows: int  # rows per block
    lanes: int  # neighbouring elements that one thread reads at once

    @property
    def steps(self) -> int | None:
        """Reads per thread, if the length is static."""
        step = self.threads * self.lanes
        return None if self.length is None else -(-self.length // step)

    @property
    def each(self) -> int:
        """Elements of the row that one thread holds, if it holds all of its share."""
        return (self.steps or _WRITTEN_OUT) * self.lanes

    def layout(self, ndim: int) -> str:
        """Layout of a row's buffer `[1, .., n]`: thread by thread."""
        t, v = self.threads, self.lanes
        *first, last = (f"d{n}" for n in range(ndim))
        places = [f"{last} // {v} % {t}", *first, f"{last} // {t * v}", f"{last} % {v}"]
        return f"lambda {', '.join((*first, last))}: ({', '.join(places)})"


def row_knobs(
    knobs: Knobs, length: int | None, bits: int, name: str = ""
) -> RowThreads:
    """The knobs of rows of `length` elements (None: dynamic) of up to `bits` bits.

    The name distinguishes knobs if a stage has asked for its own before.

    Raises:
        ScheduleError: the rows are no whole accesses, or the threads are too many.
    """
    again = f"_{name}" if name and "row_lanes" in knobs.values else ""
    lanes = knobs.choice(
        f"row_lanes{again}",
        _WIDE,
        default=_widest(length, bits),
        why=f"one access moves up to {_ACCESS_BITS} bits",
    )
    if length is not None and length % lanes:
        raise ScheduleError(f"rows of {length} are not read {lanes} at a time")
    usual = _UNKNOWN if length is None else _enough(length, lanes)
    threads = knobs.choice(
        f"threads_a_row{again}",
        THREADS,
        default=usual,
        why="rows of any length" if length is None else f"about {_EACH} elements each",
    )
    many = max(_USUAL // threads, 1)
    rows = knobs.choice(
        f"rows_a_block{again}", ROWS, default=many, why=f"{_USUAL} threads a block"
    )
    if threads * rows > _MOST:
        raise ScheduleError(f"{threads} threads for each of {rows} rows are too many")
    return RowThreads(length, threads, rows, lanes)


def _widest(length: int | None, bits: int) -> int:
    """Elements of one access, dividing a static row length.

    For a dynamic length, the kernel tests divisibility at run time.
    """
    lanes = max(_ACCESS_BITS // max(bits, 8), 1)
    while lanes > 1 and length is not None and length % lanes:
        lanes //= 2
    return min(lanes, _WIDE[-1])


def _enough(length: int, lanes: int) -> int:
    """Threads that have a few elements each, at most all there are."""
    for threads in THREADS:
        full = threads >= 32 and threads * max(_EACH, lanes) >= length
        if full or threads * lanes >= length:
            return threads
    return THREADS[-1]


def distribute_row(s: Schedule, loop: str, how: RowThreads) -> str:
    """Distribute the loop along a row; returns the loop over threads, outermost.

    Neighbouring threads read neighbours; a thread's own loops are unrolled if the
    length is static.
    """
    if how.length is None:
        step, more, thread, lane = s.split(loop, [None, _STEPS, how.threads, how.lanes])
        s.reorder(thread, step, more, lane)
        lane = s.fuse(more, lane)  # issue all loads before the first use
    else:
        rest, lane = s.split(loop, [None, how.lanes])
        step, thread = s.split(rest, [None, how.threads])
        s.reorder(thread, step, lane)
        if how.each <= _WRITTEN_OUT:
            s.unroll(step)
    s.bind(thread, "thread.x")
    if extent(s, lane) != 1:
        s.vectorize(lane)
    return thread
