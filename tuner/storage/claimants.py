"""Tuners as their claims name them, and whether one of this host is known to be dead.

A process is identified by host, boot, process namespace, id and start time, so that
neither another container's process, nor a later one with the same id, is taken for it.
Known on Linux alone.
"""

from __future__ import annotations

import os
import platform
import re
import uuid
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE: Final = Path("/proc/self/ns/pid")
_STATE, _START = 0, 19  # columns of /proc/PID/stat after the command's name
_PROCESS: Final = re.compile(r"process (\d+), started (\d+) in (\S+),")


def described() -> str:
    """What a claim says of this tuner, which is one search of this process."""
    process = f"process {os.getpid()}"
    if (started := _started(os.getpid())) and (here := _place()):
        process += f", started {started} in {here}"
    search = uuid.uuid4().hex[:8]
    return f"it is being measured by {platform.node()}, {process}, search {search}"


def is_dead(said: str) -> bool:
    """Whether the process that said this ran here and has ended."""
    found = _PROCESS.search(said)
    if found is None or found[3] != _place():
        return False
    return _started(int(found[1])) != found[2]


@cache
def _place() -> str:
    """Boot and process namespace of this process; empty if unknown."""
    with suppress(OSError):
        namespace = re.sub(r"\D", "", str(_NAMESPACE.readlink()))
        return f"{_BOOT.read_text().strip()}:{namespace}"
    return ""


def _started(process: int) -> str:
    """When a process started, in ticks since the boot; empty if it has ended."""
    with suppress(OSError):
        told = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return "" if told[_STATE] in "ZX" else told[_START]
    return ""
