"""One measurement at a time on a device, over all processes of the machine."""

from __future__ import annotations

import contextlib
import os
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import filelock

from tensorlang import nvidia

if TYPE_CHECKING:
    from tensorlang.targets import Target

_LONGEST: Final = 60.0  # seconds to wait; who holds it longer may never end
_LOOK: Final = 0.005  # seconds between two attempts
_ASK: Final = 5.0  # seconds until it is asked who holds it
_LOCKS: Final = Path("/proc/locks")
_SHOWN: Final = 100  # characters of a command
_STOPPED: Final = ("T", "t")  # states in /proc: by a signal, by a debugger
# of all users, whatever TMPDIR says
FOLDER: Final = Path("/tmp" if os.name == "posix" else tempfile.gettempdir())  # noqa: S108


def path_of(target: Target) -> Path:
    """The lock of a target's device; all of a host's processors are one device.

    A GPU has that of its place on the bus: its index follows CUDA_VISIBLE_DEVICES.
    """
    device = "cpu"
    if target.kind == "cuda":
        place = nvidia.gpus()[target.index].bus
        device = f"cuda-{place.replace(':', '.')}"
    return FOLDER / f"tensorlang-measuring-{device}.lock"


@contextlib.contextmanager
def held(
    target: Target,
    wait: float = _LONGEST,
    say: Callable[[str], object] = lambda _: None,
    known: str = "",
) -> Iterator[str]:
    """Hold a device's lock, or go on without it.

    Args:
        target: The device.
        wait: Seconds to wait for it, if that is less than a minute; less for a process
            that a signal has stopped.
        say: Told who holds it, if that takes a while.
        known: Why it was not held before: a stopped process that this names is not
            waited for again.

    Yields:
        Why it is not held, in a sentence; empty if it is.
    """
    path, why = path_of(target), ""
    lock = filelock.FileLock(path, mode=0o666, poll_interval=_LOOK)
    with contextlib.ExitStack() as stack:
        try:
            why = _acquire(lock, path, min(wait, _LONGEST), say, known)
            stack.callback(lock.release)
        except (OSError, NotImplementedError) as problem:
            said = getattr(problem, "strerror", "") or problem
            why = f"{path} cannot be locked ({said})"
        yield why and f"{why}: other tuners may have measured at the same time"


def _acquire(
    lock: filelock.BaseFileLock,
    path: Path,
    wait: float,
    say: Callable[[str], object],
    known: str,
) -> str:
    """Wait for a lock; why that was given up, or empty."""
    begun, said, passed = time.monotonic(), False, 0.0
    ask = 0.0 if known else _ASK
    while True:
        with contextlib.suppress(filelock.Timeout):
            lock.acquire(min(wait - passed, ask))
            return ""
        passed = min(time.monotonic() - begun, wait)
        holder, stopped = _holder(path)
        if (stopped and (ask or holder in known)) or passed == wait:
            return f"{holder} held {path}" + f" for more than {passed:.2g} s" * bool(
                ask
            )
        if ask and not said:
            say(f"waiting for {path}, which {holder} holds")
            said = True
        ask = _ASK


def _holder(path: Path) -> tuple[str, bool]:
    """Which process has locked a file, and whether it is stopped.

    By Linux's /proc; elsewhere it is "another process".
    """
    with contextlib.suppress(OSError, ValueError):
        wanted = str(path.stat().st_ino)
        for line in _LOCKS.read_text().splitlines():
            *_, process, place, _, _ = line.split()
            if place.rpartition(":")[2] == wanted and "->" not in line:
                command = Path(f"/proc/{process}/cmdline").read_bytes()
                said = command.replace(b"\0", b" ").decode("utf-8", "replace").strip()
                named = f"process {process} ({textwrap.shorten(said, _SHOWN)})"
                state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2]
                stopped = state.split()[0] in _STOPPED
                return named + ", which is stopped," * stopped, stopped
    return "another process", False
