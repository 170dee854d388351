"""Disable garbage collection during compiling and imports: it would find little.

Programs are trees with shared parts, kept alive by the caller until the kernel exists:
traversing them repeatedly took a tenth of the time. Modules are kept for good.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_MANY: Final = 1 << 17  # objects: some 20 MB


def collect_rarely() -> None:
    """Look for garbage after so many new objects, in a process that is all ours."""
    gc.set_threshold(_MANY)


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
