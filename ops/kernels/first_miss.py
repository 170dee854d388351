"""What is done before the first build of a kernel that is not cached."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from tensorlang import targets
from tensorlang.runtime import cache as on_disk
from tensorlang.runtime.building import is_cached
from tensorlang.targets import Target

VARIABLE: Final = "TENSORLANG_BUILD_PROCESSES"
_MOST: Final = 8


class _First(threading.local):
    """The callback for the first cache miss in this thread."""

    missing: Callable[[], None] | None = None


_FIRST: Final = _First()


@contextmanager
def at_first_miss(act: Callable[[], None]) -> Iterator[None]:
    """Call `act` before the first build of a kernel that is not cached."""
    before, _FIRST.missing = _FIRST.missing, act if processes() > 1 else None
    try:
        yield
    finally:
        _FIRST.missing = before


def missed(key: str, target: Target) -> None:
    """Run the callback of `at_first_miss` if a kernel is not cached."""
    act = _FIRST.missing
    if act is not None and not is_cached(key, target):
        _FIRST.missing = None
        act()


def processes() -> int:
    """The number of building processes, with this one; 1 if caching is disabled."""
    asked = os.environ.get(VARIABLE, "")
    count = int(asked) if asked.isdigit() else min(targets.host().threads, _MOST)
    return max(count, 1) if on_disk.directory() is not None else 1
