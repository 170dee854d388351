"""Parallel ahead-of-time builds of a program's kernels.

The program is first prepared for a target that records the kernels it needs. Those that
are not cached are built by this and a few worker processes, which write them to the
cache. Errors are ignored here: they recur, and are reported, in the regular build.
"""

from __future__ import annotations

import pickle
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tensorlang import targets
from tensorlang.errors import TensorlangError
from tensorlang.ops.calls.dispatch import Nowhere
from tensorlang.ops.kernels import building
from tensorlang.ops.kernels.first_miss import processes
from tensorlang.runtime.building import is_cached
from tensorlang.runtime.processes import Worker

if TYPE_CHECKING:
    from tensorlang.ops.operator import Operator
    from tensorlang.targets import Target
    from tensorlang.workload import Workload

    Wanted: TypeAlias = tuple[Operator, Workload, Target]

_KINDS: Final = ("llvm", "cuda")  # targets that compile without the device
_A_WORKER: Final = 4  # kernels per worker process


class Noting(Nowhere):
    """A target that records the workloads of kernels instead of building them."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self._noted: dict[tuple[Operator, Workload], None] = {}

    def built(self, op: Operator, workload: Workload) -> Nowhere:
        """Record the workload; return a stand-in for the kernel."""
        self._noted[op, workload] = None
        return self

    def taken(self) -> list[Wanted]:
        """Remove and return the recorded workloads, in order."""
        noted, self._noted = self._noted, {}
        target = targets.get(self._target)
        return [(op, workload, target) for op, workload in noted]


@cache
def noting(target: Any) -> Noting:
    """The recording target for a target: a single instance, as it keeps records."""
    return Noting(target)


def build(wanted: Iterable[Wanted]) -> None:
    """Build the kernels that are not cached, in several processes if worthwhile."""
    missing = deque(
        each
        for each in wanted
        if each[2].kind in _KINDS
        and each[0].in_library
        and not is_cached(building.request(*each)[0], each[2])
    )
    workers = [
        Worker("tensorlang.ops.kernels.ahead_worker")
        for _ in range(min(processes() - 1, len(missing) // _A_WORKER))
    ]
    threads = [
        threading.Thread(target=_feed, args=(worker, missing)) for worker in workers
    ]
    try:
        for thread in threads:
            thread.start()
        while workers and missing:
            with suppress(IndexError, TensorlangError):
                op, workload, target = missing.popleft()
                op.build(workload, target)
        for thread in threads:
            thread.join()
    finally:
        missing.clear()
        for worker in workers:
            worker.stop()


def _feed(worker: Worker, missing: deque[Wanted]) -> None:
    """Send workloads to a worker, one at a time."""
    with suppress(IndexError, OSError, ValueError):  # queue empty, or worker stopped
        while True:
            op, workload, target = missing.popleft()
            worker.ask(pickle.dumps((op.id, workload, target)))
