"""The thread pool of this process: `templates/pool.ll.j2`, compiled once and cached.

On Linux idle workers sleep on a futex and a launch wakes them. On other systems they
poll with `usleep` once they have looked for work for a while, so a launch after a
pause is slower there; a barrier yields the processor everywhere.
"""

from __future__ import annotations

import platform
import sys
from functools import cache
from typing import Final

from tensorlang import hardware, templates
from tensorlang.runtime import cache as store
from tensorlang.runtime import llvm
from tensorlang.runtime.wrapper import OUT_OF_MEMORY

SYMBOLS: Final = ("tensorlang_barrier", "tensorlang_launch", "tensorlang_run")
# rounds of looking before letting go of the processor; 1000 are some 30 microseconds
IDLE_SPINS: Final = 4000  # of a worker: calls in a loop find it awake
WAIT_SPINS: Final = 1000  # at a barrier, or for the last worker

_ARCH: Final = {"x86_64": "x86", "AMD64": "x86", "aarch64": "arm", "arm64": "arm"}
_SYSTEM_CALLS: Final = {  # Linux's numbers
    "x86_64": {
        "futex": 202,
        "gettid": 186,
        "sched_setaffinity": 203,
        "sched_getaffinity": 204,
    },
    "aarch64": {
        "futex": 98,
        "gettid": 178,
        "sched_setaffinity": 122,
        "sched_getaffinity": 123,
    },
}
_FAULTS: Final = (4, 5, 6, 7, 8, 11)  # signals that a worker causes itself


@llvm.locked
def symbols() -> dict[str, int]:
    """The pool's functions, by name, for a kernel to link against."""
    return _pool().addresses


@cache
def _pool() -> llvm.Library:
    """The loaded pool; it stays for the life of the process, for its workers do."""
    key = store.key_of("pool", llvm.versions(), *map(str, _parameters().items()))
    entry = store.load(key)
    if entry is None:
        code = llvm.compile_quickly(pool_text())
        entry = store.Entry({}, {"object": code})
        store.save(key, entry)
    return llvm.link([entry.blobs["object"]], SYMBOLS)


def pool_text() -> str:
    """The pool's LLVM IR for this machine."""
    return templates.render("pool.ll.j2", **_parameters())


def _parameters() -> dict[str, object]:
    machine = platform.machine()
    linux = sys.platform == "linux"
    system = _SYSTEM_CALLS.get(machine, {}) if linux else {}
    blocked = sum(1 << (n - 1) for n in range(1, 65) if n not in _FAULTS)
    return {
        "arch": _ARCH.get(machine, ""),
        "system": system,
        "futex": system.get("futex", 0),
        "max_threads": hardware.MAX_THREADS,
        "idle_spins": IDLE_SPINS,
        "wait_spins": WAIT_SPINS,
        "asleep": 1 << 30,
        "blocked_signals": blocked - (1 << 64),
        "sig_setmask": 2 if linux else 3,
        "huge_page": 2 << 20,
        "madv_hugepage": 14 if linux else 0,
        "out_of_memory": OUT_OF_MEMORY,
    }
