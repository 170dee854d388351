"""One measurement at a time on a device, over all processes of the machine."""

from __future__ import annotations

import contextlib
import os
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import filelock

from tensorlang import nvidia

if TYPE_CHECKING:
    from tensorlang.targets import Target

_LONGEST: Final = 60.0  # seconds to wait; who holds it longer may never end
_LOOK: Final = 0.005  # seconds between two attempts
_LOCKS: Final = Path("/proc/locks")
_SHOWN: Final = 100  # characters of a command
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
def held(target: Target, wait: float = _LONGEST) -> Iterator[str]:
    """Hold a device's lock, or go on without it.

    Args:
        target: The device.
        wait: Seconds to wait for it, if that is less than a minute.

    Yields:
        Why it is not held, in a sentence; empty if it is.
    """
    path, wait, why = path_of(target), min(wait, _LONGEST), ""
    lock = filelock.FileLock(path, timeout=wait, mode=0o666, poll_interval=_LOOK)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lock)
        except filelock.Timeout:
            why = f"{_holder(path)} held {path} for more than {wait:.2g} s"
        except (OSError, NotImplementedError) as problem:
            said = getattr(problem, "strerror", "") or problem
            why = f"{path} cannot be locked ({said})"
        yield why and f"{why}: other tuners may have measured at the same time"


def _holder(path: Path) -> str:
    """Which process has locked a file, by Linux's /proc; else "another process"."""
    with contextlib.suppress(OSError, ValueError):
        wanted = str(path.stat().st_ino)
        for line in _LOCKS.read_text().splitlines():
            *_, process, place, _, _ = line.split()
            if place.rpartition(":")[2] == wanted and "->" not in line:
                command = Path(f"/proc/{process}/cmdline").read_bytes()
                said = command.replace(b"\0", b" ").decode("utf-8", "replace").strip()
                return f"process {process} ({textwrap.shorten(said, _SHOWN)})"
    return "another process"
