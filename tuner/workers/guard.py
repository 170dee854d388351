"""The guard: a worker's parent process, which ends all that a candidate started.

Run as a script, `guard.py TUNER COMMAND...`, without imports that take long. Linux has
it inherit processes whose parents ended, also those that left their process group, and
tells it when the tuner dies; then, and when the worker ends, it kills them all, and
ends as the worker did. TUNER is its parent's id, or 0: a guard has a guard, which
inherits what is left where one of them is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
from collections.abc import Collection, Iterator

_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_CHILD_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(option, value)


def inherit_orphans() -> None:
    """Become the parent of descendants whose parents end."""
    _prctl(_CHILD_SUBREAPER, 1)


def children() -> Iterator[int]:
    """The child processes of this one, ended ones included; none without /proc."""
    with contextlib.suppress(OSError):
        for thread in os.listdir("/proc/self/task"):  # noqa: PTH208 - a quick import
            with (
                contextlib.suppress(OSError),
                open(f"/proc/self/task/{thread}/children") as listed,  # noqa: PTH123
            ):
                yield from map(int, listed.read().split())


def end_children(apart: Collection[int] = ()) -> None:
    """Kill all children, and the orphans that are inherited from them.

    Args:
        apart: Children to keep.
    """
    while ending := [child for child in children() if child not in apart]:
        for child in ending:
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        for child in ending:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)


def _start(command: list[str]) -> int:
    """Start the worker, which is killed with the guard."""
    guard = os.getpid()
    worker = os.fork()
    if worker:
        return worker
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGCHLD, signal.SIGTERM))
    _prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() == guard:
        os.execv(command[0], command)  # noqa: S606 - the tuner's own command
    os._exit(1)


def _ended(worker: int) -> int | None:
    """Reap ended children; the worker's exit code if it is among them."""
    found = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == worker:
                found = os.waitstatus_to_exitcode(ended[1])
    return found


def _end_alike(code: int) -> None:
    """Exit with a code, or by the same signal, without a second core dump."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (-code,))
        os.kill(os.getpid(), -code)
    os._exit(code)


def main(tuner: int, command: list[str]) -> None:
    """Run the worker until it, or the tuner, ends."""
    inherit_orphans()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, signal.SIGTERM))
    _prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)
    worker, code = _start(command), None
    nothing = os.open(os.devnull, os.O_RDWR)
    for pipe in (0, 1):  # whose other ends are to see the worker's end
        os.dup2(nothing, pipe)
    while code is None and os.getppid() == tuner:
        if signal.sigwait((signal.SIGCHLD, signal.SIGTERM)) == signal.SIGTERM:
            break
        code = _ended(worker)
    end_children()
    _end_alike(-signal.SIGTERM if code is None else code)


if __name__ == "__main__":
    main(int(sys.argv[1]) or os.getppid(), sys.argv[2:])
