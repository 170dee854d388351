"""Long one-dimensional loops on a CPU: chunks to threads, lanes to vectors, a tail.

for i in range(n):      for i_0 in parallel(n // (chunk * lanes)):
                            for i_1 in range(chunk):
                                for i_2 in vectorized(lanes):
                        for i_tail_0 in range(...):        # remainder, guarded
                            for i_tail_1 in vectorized(lanes):

More lanes than a register has (several vectors side by side) hide the latency of long
dependency chains, such as a hash's rounds.
"""

from __future__ import annotations

from typing import Final

from tensorlang.frozen import frozen
from tensorlang.ir.contents import loops
from tensorlang.ir.integers.size_bounds import size_ranges
from tensorlang.ir.nodes import Const, Expr, For
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.schedules.cost.core import PAGE, Core
from tensorlang.scheduling import Knobs, Schedule

LANES: Final = (8, 16, 32, 48, 64, 96, 128)
_CHUNKS: Final = (16, 32, 64, 128, 256, 512)


@frozen
class Stream:
    """How to tile a long loop: a unit of work is `chunk` steps of `lanes` elements."""

    lanes: int
    chunk: int
    nontemporal: bool

    @property
    def step(self) -> int:
        """Elements in a thread's unit of work."""
        return self.lanes * self.chunk


def stream_knobs(knobs: Knobs, core: Core, lanes: int) -> Stream:
    """The knobs of a stream.

    By default a unit of work has as many steps as vectors fit a page of memory.

    Args:
        core: A core that runs it.
        lanes: Elements side by side.
    """
    chunk = nearest_option(PAGE // core.vector, _CHUNKS)
    return Stream(
        knobs.choice(
            "lanes",
            LANES,
            default=nearest_option(lanes, LANES),
            why=f"{max(lanes // core.lanes, 1)} vectors of {core.lanes} side by side "
            "hide the latency of each",
        ),
        knobs.choice(
            "chunk", _CHUNKS, default=chunk, why="as many vectors as a page of memory"
        ),
        knobs.flag("nontemporal"),
    )


def nearest_option(wanted: float, options: tuple[int, ...]) -> int:
    """The option of a knob that is nearest to what is wanted."""
    return min(options, key=lambda option: abs(option - wanted))


def loop_named(s: Schedule, name: str) -> For:
    """The loop with this name."""
    return next(loop for loop in loops(s.function.body) if loop.var.name == name)


def stream(s: Schedule, loop: str, how: Stream) -> tuple[str, ...]:
    """Split `loop` into parallel chunks of vectors and a vectorized tail.

    Returns:
        The names of the innermost, vectorized loops: main and tail, or the only one.
    """
    extent = loop_named(s, loop).extent
    whole = whole_steps(s, extent, how.step)
    if whole == extent:
        return (_cut(s, loop, how),)
    if whole == Const(0, whole.dtype):  # shorter than one thread's unit of work
        _, lanes = s.split(loop, [None, how.lanes])
        s.vectorize(lanes)
        return (lanes,)
    main, tail = s.partition(loop, whole)
    inner = _cut(s, main, how)
    _, lanes = s.split(tail, [None, how.lanes])
    s.vectorize(lanes)
    return inner, lanes


def whole_steps(s: Schedule, extent: Expr, step: int) -> Expr:
    """The largest multiple of `step` not above an extent."""
    return simplify(extent // step * step, size_ranges(s.function))


def _cut(s: Schedule, loop: str, how: Stream) -> str:
    chunks, _, lanes = s.split(loop, [None, how.chunk, how.lanes])
    s.parallel(chunks)
    s.vectorize(lanes)
    return lanes
