"""What other programs did on the processors while something was measured."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

_IDLE: Final = (3, 4)  # columns of /proc/stat: idle, and waiting for devices
_COUNTED: Final = 8  # columns; those after it are contained in others
_TOLERATED: Final = 0.3  # processors


class Load:
    """Processor time of others since it was made; known on Linux alone."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._busy, self._own = _busy(), _own()

    def others(self) -> float:
        """How many processors others kept busy on average; 0 if unknown.

        Child processes count as others until they have ended.
        """
        passed = time.monotonic() - self._begun
        busy = _busy() - self._busy - (_own() - self._own)
        return max(busy / passed, 0.0) if passed > 0 else 0.0

    def trouble(self, threads: int) -> str:
        """Why measurements on so many threads were disturbed; else empty."""
        others, processors = self.others(), os.cpu_count() or 1
        if others <= max(processors - threads, 0) + _TOLERATED:
            return ""
        return (
            f"other programs kept {others:.1f} of {processors} processors busy "
            "meanwhile: the times are less certain"
        )


def _busy() -> float:
    """Seconds that all processors were busy."""
    try:
        first = Path("/proc/stat").read_text().partition("\n")[0]
        ticks = [int(text) for text in first.split()[1 : 1 + _COUNTED]]
    except (OSError, ValueError):
        return 0.0
    busy = sum(count for at, count in enumerate(ticks) if at not in _IDLE)
    return busy / os.sysconf("SC_CLK_TCK")


def _own() -> float:
    """Seconds of this process and of its ended children."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system
