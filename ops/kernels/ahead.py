"""Parallel ahead-of-time builds of a program's kernels.

The program is first prepared for a target that records the kernels it needs. Those that
are not cached are built by this and a few worker processes, which write them to the
cache. Errors are ignored here: they recur, and are reported, in the regular build.
"""

from __future__ import annotations

import pickle
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tensorlang import targets
from tensorlang.errors import TensorlangError
from tensorlang.ops.calls.dispatch import Nowhere
from tensorlang.ops.kernels import kept
from tensorlang.ops.kernels.first_miss import processes
from tensorlang.runtime.building import file_kernel, is_cached
from tensorlang.runtime.processes import Worker

if TYPE_CHECKING:
    from tensorlang.ops.operator import Operator
    from tensorlang.targets import Target
    from tensorlang.workload import Workload

    # with the positions of constant arrays, if the kernel is built in two parts
    Wanted: TypeAlias = tuple[Operator, Workload, Target, tuple[int, ...]]

_KINDS: Final = ("llvm", "cuda")  # targets that compile without the device
_A_WORKER: Final = 4  # kernels per worker process


class Noting(Nowhere):
    """A target that records the workloads of kernels instead of building them."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self._noted: dict[tuple[Operator, Workload, tuple[int, ...]], None] = {}

    @property
    def target(self) -> Target:
        """The target of the kernels."""
        return targets.get(self._target)

    def built(self, op: Operator, workload: Workload) -> Nowhere:
        """Record the workload; return a stand-in for the kernel."""
        self.note(op, workload, ())
        return self

    def note(self, op: Operator, workload: Workload, constants: Sequence[int]) -> None:
        """Record a workload, and which of its arrays are constant."""
        self._noted[op, workload, tuple(constants)] = None

    def divided(
        self, asked: kept.Asked, constants: Sequence[int], arguments: tuple[Any, ...]
    ) -> kept.Step:
        """The step of a kernel in two parts, for a call with these arguments."""
        del arguments
        self.note(asked.op, asked.workload, constants)
        return self.launch, ()

    def taken(self) -> list[Wanted]:
        """Remove and return the recorded workloads, in order."""
        noted, self._noted = self._noted, {}
        target = self.target
        return [(op, workload, target, fixed) for op, workload, fixed in noted]


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
        and not is_cached(kept.all_requests(*each)[0][0], each[2])
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
                op, workload, target, constants = missing.popleft()
                for key, make in kept.all_requests(op, workload, target, constants):
                    file_kernel(key, make, target)
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
            op, *rest = missing.popleft()
            worker.ask(pickle.dumps((op.id, *rest)))
