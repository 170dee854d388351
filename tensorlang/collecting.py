"""No garbage is looked for while a kernel is made, as little of what is made is any.

Programs are trees that share parts, and are held by their caller until the kernel is
there: looking through them again and again took a tenth of the time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Let Python's collector rest: a context, or a decorator."""
    resting = not gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if not resting:
            gc.enable()
