"""Disable garbage collection during compiling and imports: it would find little.

Programs are trees with shared parts, kept alive by the caller until the kernel exists:
traversing them repeatedly took a tenth of the time. Modules are kept for good.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_MANY: Final = 1 << 17  # objects made and not freed


def collect_rarely() -> None:
    """Look for new garbage after many objects, in a process that is all ours.

    Among older objects it is looked for after as many of these looks as before.
    """
    gc.set_threshold(_MANY)


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause Python's garbage collector: a context manager, or a decorator.

    The whole process has one collector, so that it rests in all threads. Of pauses that
    overlap, the end of the first to begin ends all. `gc.disable` and `gc.enable` keep
    their effect, whoever calls them meanwhile, and so does a new threshold except 0.
    """
    before = gc.get_threshold()[0]
    gc.set_threshold(0)  # never, even if enabled
    try:
        yield
    finally:
        if gc.get_threshold()[0] == 0:
            gc.set_threshold(before)
