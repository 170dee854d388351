"""Disable garbage collection while a kernel is compiled, as it would find little.

Programs are trees with shared parts, kept alive by the caller until the kernel exists:
traversing them repeatedly took a tenth of the time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause Python's garbage collector: a context manager, or a decorator."""
    resting = not gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if not resting:
            gc.enable()
