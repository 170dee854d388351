"""One measurement at a time on a device, over all processes of the machine."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import filelock

from tensorlang import devices

if TYPE_CHECKING:
    from tensorlang.targets import Target

_LONGEST: Final = 60.0  # seconds to wait; a process that holds it longer is stopped
_LOOK: Final = 0.005  # seconds between two attempts
# of all users, whatever TMPDIR says
FOLDER: Final = Path("/tmp" if os.name == "posix" else tempfile.gettempdir())  # noqa: S108


def path_of(target: Target) -> Path:
    """The lock of a target's device; all of a host's processors are one device.

    A GPU has that of its place on the bus: its index follows CUDA_VISIBLE_DEVICES.
    """
    device = "cpu"
    if target.kind == "cuda":
        place = devices.cuda_handle(target.index).pci_bus_id()
        device = f"cuda-{place.replace(':', '.')}"
    return FOLDER / f"tensorlang-measuring-{device}.lock"


@contextlib.contextmanager
def held(target: Target) -> Iterator[None]:
    """Hold a device's lock; without it where the system does not give it."""
    with contextlib.ExitStack() as stack:
        lock = filelock.FileLock(
            path_of(target), timeout=_LONGEST, mode=0o666, poll_interval=_LOOK
        )
        with contextlib.suppress(OSError, filelock.Timeout):
            stack.enter_context(lock)
        yield
