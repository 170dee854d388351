"""Threads along rows: how many, how wide they read, and how many rows a block has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tensorlang.errors import ScheduleError
from tensorlang.schedules.tiling import extent
from tensorlang.scheduling import Knobs, Schedule

THREADS: Final = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
ROWS: Final = (1, 2, 4, 8, 16, 32)
_WIDE: Final = (1, 2, 4, 8, 16)
_ACCESS_BITS: Final = 128
_EACH: Final = 16  # numbers of a row for one thread, where there are enough
_USUAL: Final = 128  # threads of a block, at least
_MOST: Final = 1024
_UNKNOWN: Final = 128  # threads for a row of any length
_STEPS: Final = 2  # loads that one thread has under way where the length varies
_WRITTEN_OUT: Final = 64  # numbers of one thread


@dataclass(frozen=True, slots=True)
class RowThreads:
    """How a row is shared out.

    Attributes:
        length: Of the row, where it is known.
        threads: That work on one row.
        rows: Of one block.
        lanes: Neighbours that one thread reads at once.
    """

    length: int | None
    threads: int
    rows: int
    lanes: int

    @property
    def steps(self) -> int | None:
        """How often a thread reads, where the length is known."""
        step = self.threads * self.lanes
        return None if self.length is None else -(-self.length // step)

    @property
    def each(self) -> int:
        """Numbers of the row that one thread holds, if it holds all of its part."""
        return (self.steps or _WRITTEN_OUT) * self.lanes

    def layout(self, ndim: int) -> str:
        """Where a row's buffer `[1, .., n]` has its numbers: thread by thread."""
        t, v = self.threads, self.lanes
        *first, last = (f"d{n}" for n in range(ndim))
        places = [f"{last} // {v} % {t}", *first, f"{last} // {t * v}", f"{last} % {v}"]
        return f"lambda {', '.join((*first, last))}: ({', '.join(places)})"


def row_knobs(
    knobs: Knobs, length: int | None, bits: int, name: str = ""
) -> RowThreads:
    """The knobs of rows of a length, or of any, whose elements have up to so many bits.

    Where others have asked for theirs before, they are told apart by the name.

    Raises:
        ScheduleError: the rows are no whole accesses, or the threads are too many.
    """
    again = f"_{name}" if name and "row_lanes" in knobs.values else ""
    lanes = knobs.choice(f"row_lanes{again}", _WIDE, default=_widest(length, bits))
    if length is not None and length % lanes:
        raise ScheduleError(f"rows of {length} are not read {lanes} at a time")
    usual = _UNKNOWN if length is None else _enough(length, lanes)
    threads = knobs.choice(f"threads_a_row{again}", THREADS, default=usual)
    many = max(_USUAL // threads, 1)
    rows = knobs.choice(f"rows_a_block{again}", ROWS, default=many)
    if threads * rows > _MOST:
        raise ScheduleError(f"{threads} threads for each of {rows} rows are too many")
    return RowThreads(length, threads, rows, lanes)


def _widest(length: int | None, bits: int) -> int:
    """Numbers of one access: such that each row is whole accesses.

    Of a length that is not known, the kernel asks whether it is whole accesses.
    """
    lanes = max(_ACCESS_BITS // max(bits, 8), 1)
    while lanes > 1 and length is not None and length % lanes:
        lanes //= 2
    return min(lanes, _WIDE[-1])


def _enough(length: int, lanes: int) -> int:
    """Threads that have a few numbers each; for a long row, as many as there are."""
    for threads in THREADS:
        full = threads >= 32 and threads * max(_EACH, lanes) >= length
        if full or threads * lanes >= length:
            return threads
    return THREADS[-1]


def along(s: Schedule, loop: str, how: RowThreads) -> str:
    """Share the loop along a row out: the loop over threads, outermost.

    Neighbouring threads read neighbours; what one thread does is written out where its
    length is known.
    """
    if how.length is None:
        step, more, thread, lane = s.split(loop, [None, _STEPS, how.threads, how.lanes])
        s.reorder(thread, step, more, lane)
        lane = s.fuse(more, lane)  # all loads before the first use
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
