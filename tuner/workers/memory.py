"""A limit of the memory that a schedule function may take."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_SHARE: Final = 2  # of the machine's memory: one part in so many


@contextlib.contextmanager
def limited() -> Iterator[int]:
    """Let the body allocate half of the machine's memory; more is a `MemoryError`.

    Yields:
        The number of bytes; 0 if there is no limit, or one from outside.
    """
    held = _allocated()
    if not held or is_limited():
        yield 0
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    most = _physical() // _SHARE
    resource.setrlimit(resource.RLIMIT_DATA, (held + most, before[1]))
    try:
        yield most
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _physical() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def is_limited() -> bool:
    """Whether a limit from outside applies."""
    kinds = (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    return any(resource.getrlimit(k)[0] != resource.RLIM_INFINITY for k in kinds)


def _allocated() -> int:
    """Bytes of this process that `RLIMIT_DATA` counts; 0 if unknown."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmData:"):
                return int(line.split()[1]) << 10
    return 0
