"""Kernels of a program, built side by side before it runs: `python -m` this module.

A program is prepared for targets that note what they would build. What no cache has is
shared out among this process and a few others, which file what they build; there this
one finds it. What goes wrong on the way is met again, and told, by who builds it next.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tensorlang import targets
from tensorlang.errors import TensorlangError
from tensorlang.ops.dispatch import Nowhere
from tensorlang.ops.registry import find
from tensorlang.runtime import cache as on_disk
from tensorlang.runtime.building import file_kernel, is_cached
from tensorlang.runtime.processes import Worker, serve

if TYPE_CHECKING:
    from tensorlang.ops.operator import Operator
    from tensorlang.targets import Target
    from tensorlang.workload import Workload

    Wanted: TypeAlias = tuple[Operator, Workload, Target]

VARIABLE: Final = "TENSORLANG_BUILD_PROCESSES"
_KINDS: Final = ("llvm", "cuda")  # whose kernels are compiled without the device
_A_WORKER: Final = 4  # kernels for which another process is worth starting
_MOST: Final = 8


class Noting(Nowhere):
    """A target that notes the workloads of kernels, in place of building them."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self._noted: dict[tuple[Operator, Workload], None] = {}

    def built(self, op: Operator, workload: Workload) -> Nowhere:
        """What stands for the kernel, which is noted."""
        self._noted[op, workload] = None
        return self

    def taken(self) -> list[Wanted]:
        """What was noted since it was taken before, in order."""
        noted, self._noted = self._noted, {}
        target = targets.get(self._target)
        return [(op, workload, target) for op, workload in noted]


@cache
def noting(target: Any) -> Noting:
    """The target that notes what a target would build: one, for what is noted stays."""
    return Noting(target)


class _First(threading.local):
    """What is done where a kernel is in no cache, in this thread."""

    missing: Callable[[], None] | None = None


_FIRST: Final = _First()


@contextmanager
def at_first_miss(act: Callable[[], None]) -> Iterator[None]:
    """Do something before the first kernel that is in no cache is built, if any is."""
    before, _FIRST.missing = _FIRST.missing, act if processes() > 1 else None
    try:
        yield
    finally:
        _FIRST.missing = before


def missed(key: str, target: Target) -> None:
    """Do what is to be done where a kernel is in no cache, if it is not."""
    act = _FIRST.missing
    if act is not None and not is_cached(key, target):
        _FIRST.missing = None
        act()


def processes() -> int:
    """How many processes may build, this one included; 1 where nothing is cached."""
    asked = os.environ.get(VARIABLE, "")
    count = int(asked) if asked.isdigit() else min(targets.host().threads, _MOST)
    return max(count, 1) if on_disk.directory() is not None else 1


def build(wanted: Iterable[Wanted]) -> None:
    """Build what is in no cache, in as many processes as are worth it."""
    from tensorlang.ops import building  # noqa: PLC0415 - which imports this module

    missing = deque(
        each
        for each in wanted
        if each[2].kind in _KINDS
        and building.in_caches(each[0])
        and not is_cached(building.request(*each)[0], each[2])
    )
    workers = [
        Worker("tensorlang.ops.ahead")
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
    """Have a process build one after the other."""
    with suppress(IndexError, OSError, ValueError):  # none is left; it was stopped
        while True:
            op, workload, target = missing.popleft()
            worker.ask(pickle.dumps((op.id, workload, target)))


def _answer(request: bytes) -> bytes:
    from tensorlang.ops import building  # noqa: PLC0415 - which imports this module

    id, workload, target = pickle.loads(request)  # noqa: S301 - of the other process
    with suppress(TensorlangError):
        file_kernel(*building.request(find(id), workload, target), target)
    return b""


if __name__ == "__main__":
    serve(_answer)
