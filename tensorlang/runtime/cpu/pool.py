"""The thread pool of this process: `templates/pool.ll.j2`, compiled once and cached.

On Linux idle workers sleep on a futex and a launch wakes them. On other systems they
poll with `usleep` after spinning for a while, so a launch after a pause is slower
there. Barriers yield the processor on all systems.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache
from typing import Final

from tensorlang import hardware, templates
from tensorlang.runtime import cache as store
from tensorlang.runtime.cpu import llvm
from tensorlang.runtime.cpu.wrapper import OUT_OF_MEMORY

SYMBOLS: Final = (
    "tensorlang_barrier",
    "tensorlang_claim",
    "tensorlang_launch",
    "tensorlang_run",
    "tensorlang_shares",
    "tensorlang_wait",
)
_PATIENCE: Final = "tensorlang_patience"
_ALONE_UNTIL: Final = "tensorlang_alone_until"
_ALONE_LEFT: Final = "tensorlang_alone_left"
_WATCH_UNTIL: Final = "tensorlang_watch_until"
_RELAPSE_UNTIL: Final = "tensorlang_relapse_until"
# spins before yielding the processor; 1000 take about 30 microseconds
IDLE_SPINS: Final = 4000  # workers: still awake for calls in a loop
WAIT_SPINS: Final = 1000  # at a barrier, or waiting for the last worker
SHARES_EACH: Final = 4  # of a stage, for each thread; at most 8: they have one line
BACKOFF: Final = 40  # so busy processors cost at most 1/40 of the time of launches
REST: Final = 10  # or, where launches are rare, 1/400 of all time
PATIENCE: Final = 200_000  # nanoseconds: waking a thread is no loss
STREAK: Final = 32  # short jobs, so waking costs little of their time
GAP: Final = 50_000  # nanoseconds between jobs in a loop: workers are still awake
HABITS: Final = 1024  # kernels and sizes whose time is remembered
MOST_LOST: Final = 10_000_000  # nanoseconds: a time slice; longer stops are of others

_ARCH: Final = {"x86_64": "x86", "AMD64": "x86", "aarch64": "arm", "arm64": "arm"}
_SYSTEM_CALLS: Final = {  # Linux system call numbers
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
_FAULTS: Final = (4, 5, 6, 7, 8, 11)  # synchronous signals, which stay unblocked


@llvm.locked
def symbols() -> dict[str, int]:
    """Addresses of the pool's functions, for kernels to link against."""
    found = _pool().addresses
    return {name: found[name] for name in SYMBOLS}


def always_share(share: bool = True) -> None:
    """Whether launches use all threads even while other programs hold processors.

    For measuring, where a team's time must be a team's. By default a launch that lost
    time to a busy processor is followed by some on the calling thread alone.
    """
    addresses = _pool().addresses
    patience = ctypes.c_int64.from_address(addresses[_PATIENCE])
    patience.value = (1 << 62) if share else PATIENCE
    if share:  # as if nothing had been lost
        for name in (_ALONE_UNTIL, _WATCH_UNTIL, _RELAPSE_UNTIL):
            ctypes.c_int64.from_address(addresses[name]).value = 0


@cache
def _pool() -> llvm.Library:
    """The loaded pool; never unloaded, as its workers keep running."""
    key = store.key_of("pool", llvm.versions(), *map(str, _parameters().items()))
    entry = store.load(key)
    if entry is None:
        code = llvm.compile_quickly(pool_text())
        entry = store.Entry({}, {"object": code})
        store.save(key, entry)
    words = _PATIENCE, _ALONE_UNTIL, _ALONE_LEFT, _WATCH_UNTIL, _RELAPSE_UNTIL
    exported = (*SYMBOLS, *words)
    return llvm.link([entry.blobs["object"]], exported)


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
        "shares_each": SHARES_EACH,
        "backoff": BACKOFF,
        "rest": REST,
        "patience": PATIENCE,
        "habits": HABITS,
        "streak": STREAK,
        "gap": GAP,
        "most_lost": MOST_LOST,
        "clock": {"wall": 1, "thread": 3} if linux else {"wall": 6, "thread": 16},
        "asleep": 1 << 30,
        "blocked_signals": blocked - (1 << 64),
        "sig_setmask": 2 if linux else 3,
        "huge_page": 2 << 20,
        "madv_hugepage": 14 if linux else 0,
        "out_of_memory": OUT_OF_MEMORY,
    }
