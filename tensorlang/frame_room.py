"""Room for deep recursion on CPython's stack of frames.

CPython (at least 3.11 to 3.13) keeps frames in chunks of 16 KiB: one is mapped for a
call that does not fit into the last one, and unmapped when that call returns. Recursion
over IR that goes up and down at the end of a chunk maps memory, and faults on its
pages, at every call: up to a third of the time of a compilation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_SLOTS: Final = 1 << 16  # 512 KiB: about as much room as the recursion limit permits


def frame_room(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: calls within `function` find room in one chunk of frames.

    The frame of the wrapper declares a large evaluation stack, of which it touches
    nothing. Its chunk, a power of 2 and larger than that, has as much room behind it.
    Costs a mapping per call: for functions that take milliseconds.
    """

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return function(*args, **kwargs)

    call.__code__ = call.__code__.replace(co_stacksize=_SLOTS)
    return wraps(function)(call)
