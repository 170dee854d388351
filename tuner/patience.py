"""How long a worker has been at work: waiting for a processor is no work.

On a machine that is busy with other things a candidate mostly waits for its turn. That
it is not done in time says nothing about it then, and the verdict would be filed for
good. Linux tells how long each thread has waited; elsewhere all time counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Final

_STEP: Final = 0.1  # seconds between two looks

Waits = dict[str, int]  # nanoseconds that threads have waited, by thread


class Patience:
    """The seconds that a process still has for what it does.

    Args:
        process: Its id.
        limit: Seconds that it may be at work, with the processes that it starts.
        until: When there is no more time for it in any case, by `time.monotonic`.
    """

    def __init__(self, process: int, limit: float, until: float = inf) -> None:
        self._process, self._until = process, until
        self._limit = self._left = limit
        self._seen, self._waits = time.monotonic(), _waits(process)

    def next_look(self) -> float:
        """Seconds to wait for an answer before the next look; 0 once time is up."""
        now, waits = time.monotonic(), _waits(self._process)
        passed = min(now - self._seen, 2 * _STEP)  # more: this process stood still
        left = self._left - passed + _longest(self._waits, waits)
        self._left = min(left, self._limit)  # a wait is told when it is over
        self._seen, self._waits = now, waits
        return max(min(self._left, self._until - now, _STEP), 0.0)


def _longest(before: Waits, after: Waits) -> float:
    """The most seconds that one thread has waited in between."""
    grown = (after[thread] - before.get(thread, 0) for thread in after)
    return max(grown, default=0) / 1e9


def _waits(process: int) -> Waits:
    """How long each thread of a process and its children has waited so far."""
    found: Waits = {}
    for thread in _threads(str(process)):
        try:
            _, waited, _ = (thread / "schedstat").read_text().split()
        except (OSError, ValueError):  # it has ended, or the system does not tell
            continue
        found[thread.name] = int(waited)
    return found


def _threads(process: str) -> Iterator[Path]:
    """The threads of a process and of what it started, as Linux shows them."""
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
