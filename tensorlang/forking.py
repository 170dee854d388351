"""Locks taken around a fork, so that none is held by a thread missing in the child.

A fork waits for first calls, which import modules, and for compilations to finish. The
locks are ordered, as a first call may compile.
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
