"""Permission to use AMX: Linux enables its tile registers for processes that ask.

The registers are 8 KiB, saved with the others where a thread is interrupted, so that
the kernel grants them on request only (Linux, Documentation/arch/x86/xstate.rst).
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable
from typing import Final

_ARCH_PRCTL: Final = 158  # the system call's number on x86-64
_REQUEST: Final = 0x1023  # ARCH_REQ_XCOMP_PERM
_TILES: Final = 18  # the state component of the tile registers


def granted(call: Callable[[int, int, int], int] | None = None) -> bool:
    """Ask for this process and those that it forks; False if the system refuses.

    `call` stands in for the system call in tests: it takes its number, the request and
    the component, and returns 0 if that is granted.
    """
    if call is None:
        if sys.platform != "linux" or platform.machine() != "x86_64":
            return False
        call = ctypes.CDLL(None).syscall
    return call(_ARCH_PRCTL, _REQUEST, _TILES) == 0
