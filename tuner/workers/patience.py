"""Busy time of a worker, excluding time spent waiting for a processor.

On a busy machine a candidate mostly waits for a processor; a timeout would then say
nothing about the candidate, but be recorded permanently. Linux reports the waiting time
per thread; elsewhere all time counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Final

_STEP: Final = 0.1  # seconds between two polls
_ASLEEP: Final = 5.0  # seconds that a suspended process is waited for

Waits = dict[str, int]  # nanoseconds spent waiting, by thread


class Patience:
    """The remaining time of a process.

    Args:
        process: Its id.
        limit: Busy seconds for the process and its children.
        until: Absolute deadline, by `time.monotonic`.

    Attributes:
        paused: Whether time does not count at present.
        late: Whether the deadline has come, with busy seconds left.
        suspended: Whether a signal stopped the process, and it was waited for in vain.
    """

    def __init__(self, process: int, limit: float, until: float = inf) -> None:
        self._process, self._until = process, until
        self._limit = self._left = limit
        self._seen, self._waits = time.monotonic(), _waits(process)
        self.paused = self.late = self.suspended = False
        self._asleep = 0.0  # seconds that it has been suspended for

    def next_look(self) -> float:
        """Seconds to wait for an answer before the next poll; 0 once the time is up.

        A process that sends many lines is not looked at for each of them.
        """
        now = time.monotonic()
        if now - self._seen >= min(_STEP / 2, self._left):
            self._look(now)
        self.late = now >= self._until and self._left > 0
        return max(min(self._left, self._until - now, _STEP), 0.0)

    def _look(self, now: float) -> None:
        """Count what has passed since the last look."""
        waits = _waits(self._process)
        # more means that this process was suspended
        passed = min(now - self._seen, 2 * _STEP)
        if _is_suspended(self._process):
            self._asleep += passed
            self.suspended = self._asleep >= _ASLEEP
            passed = 0.0
        else:
            self._asleep = 0.0
        passed *= not self.paused
        left = self._left - passed + _longest(self._waits, waits)
        self._left = min(left, self._limit)  # a wait is reported when it is over
        self._seen, self._waits = now, waits


def _is_suspended(process: int) -> bool:
    """Whether a process or one of its children is stopped by a signal."""
    for thread in _threads(str(process)):
        try:
            told = (thread / "stat").read_text()
        except OSError:
            continue
        if told.rpartition(")")[2].split()[0] == "T":
            return True
    return False


def _longest(before: Waits, after: Waits) -> float:
    """The longest wait of any thread between two polls, in seconds."""
    grown = (after[thread] - before.get(thread, 0) for thread in after)
    return max(grown, default=0) / 1e9


def _waits(process: int) -> Waits:
    """Waiting time so far of each thread of a process and its children."""
    found: Waits = {}
    for thread in _threads(str(process)):
        try:
            _, waited, _ = (thread / "schedstat").read_text().split()
        except (OSError, ValueError):  # ended, or not reported by the system
            continue
        found[thread.name] = int(waited)
    return found


def _threads(process: str) -> Iterator[Path]:
    """The threads of a process and its children, in Linux's /proc."""
    try:
        threads = list(Path(f"/proc/{process}/task").iterdir())
    except OSError:
        return
    for thread in threads:
        yield thread
        try:
            children = (thread / "children").read_text().split()
        except OSError:
            continue
        for child in children:
            yield from _threads(child)
