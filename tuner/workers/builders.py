"""Builders: workers that build the next candidates beside the measuring.

They put kernels into the cache, where the worker that checks and times a candidate
finds them, and judge nothing: what one of them cannot build is built again there.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Final

from tensorlang import hardware
from tensorlang.errors import TuningError
from tensorlang.targets import Target
from tensorlang.tuner.workers.client import Worker
from tensorlang.tuner.workers.process import Unavailable
from tensorlang.tuner.workers.protocol import Candidate

_MOST: Final = 8  # what is suggested so far ahead knows too little
_POLL: Final = 0.05  # seconds between two attempts to end


def spare(target: Target, *, static: bool) -> int:
    """How many builders there are cores for, beside measuring and the tuner itself."""
    cores = hardware.cores()
    measuring = {"cuda": 1, "llvm": target.threads}.get(target.kind, cores)
    return max(min(cores - 1 - (1 if static else measuring), _MOST), 0)


class Builders:
    """Some builders, a thread each.

    Args:
        workers: Their workers, which nobody else uses.
        limit: Busy seconds for a candidate.

    Attributes:
        count: How many there are.
    """

    def __init__(self, workers: Sequence[Worker] = (), limit: float = 0.0) -> None:
        self._workers, self._limit, self.count = workers, limit, len(workers)
        self._pool = ThreadPoolExecutor(max(self.count, 1))
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        self._starting = [self._pool.submit(self._start, each) for each in workers]
        self._building: dict[str, Future[None]] = {}

    def _start(self, worker: Worker) -> None:
        with suppress(TuningError):  # it is given up
            worker.open()
            self._idle.put(worker)

    def begin(self, candidate: Candidate) -> None:
        """Build a candidate when a builder is free."""
        if self.count and candidate.key not in self._building:
            self._building[candidate.key] = self._pool.submit(self._build, candidate)

    def _build(self, candidate: Candidate) -> None:
        try:
            worker = self._idle.get_nowait()
            worker.prepare(candidate, self._limit)
        except (queue.Empty, Unavailable):  # it is given up
            return
        self._idle.put(worker)

    def await_built(self, candidate: Candidate, left: float) -> None:
        """Wait for a candidate that is being built; one that is not is passed over."""
        future = self._building.get(candidate.key)
        if future is not None and not future.cancel():
            wait([future], min(left, self._limit))

    def close(self) -> None:
        """End the builders, whatever they are doing."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        while not all(f.done() for f in [*self._starting, *self._building.values()]):
            for worker in self._workers:
                worker.end()
            time.sleep(_POLL)
        for worker in self._workers:
            worker.stop()
