"""Locks that no thread holds across a fork: a child has nobody to release them.

A fork waits until first calls, which import modules, and compilations have ended. The
order of the two is fixed, as a first call may compile.
"""

from __future__ import annotations

import os
import threading
from typing import Final

FIRST_CALLS: Final = threading.RLock()
COMPILING: Final = threading.RLock()


def _before() -> None:
    FIRST_CALLS.acquire()
    COMPILING.acquire()


def _after() -> None:
    COMPILING.release()
    FIRST_CALLS.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
