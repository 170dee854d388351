"""Pooled memory for fresh outputs: aligned, and recycled when no longer referenced.

First touch of new memory costs a page fault per page, several times the cost of the
kernel that fills it, so large outputs reuse blocks that were touched before. `empty`
returns a NumPy array whose base is a *lease* on a block; views of the array and DLPack
exports keep the lease alive, and its finaliser returns the block. At most `LIMIT_BYTES`
stay idle; blocks beyond that are unmapped.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import sys
import threading
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np

from tensorlang.runtime.arrays.host_arrays import Array

SMALLEST: Final = 128 << 10  # below this, malloc recycles: glibc's M_MMAP_THRESHOLD
HUGE_PAGE: Final = 2 << 20
LIMIT_BYTES: Final = 1 << 30


class Block:
    """One mapping of `size` usable bytes at `address`, aligned to a (huge) page."""

    __slots__ = ("address", "mapping", "size")

    def __init__(self, size: int) -> None:
        slack = HUGE_PAGE if size >= HUGE_PAGE else 0
        self.mapping = _map(size + slack)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.mapping))
        self.address = start + (-start % HUGE_PAGE if slack else 0)
        self.size = size
        if slack and hasattr(mmap, "MADV_HUGEPAGE"):
            self.mapping.madvise(mmap.MADV_HUGEPAGE)


class BufferPool:
    """Idle blocks by size. Safe with threads and with `fork` (mappings are private)."""

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self.limit = limit
        self.idle_bytes = 0
        self._idle: dict[int, list[Block]] = {}
        # reentrant: garbage collection may end a lease inside these methods
        self._lock = threading.RLock()

    def take(self, size: int) -> Block:
        """An idle block of this size, or a new one."""
        with self._lock:
            idle = self._idle.get(size)
            if idle:
                self.idle_bytes -= size
                return idle.pop()
        return Block(size)

    def put(self, block: Block) -> None:
        """Keep a block for reuse if the limit allows."""
        with self._lock:
            if self.idle_bytes + block.size <= self.limit:
                self.idle_bytes += block.size
                idle = self._idle.get(block.size)
                if idle is None:
                    idle = self._idle[block.size] = []
                idle.append(block)

    def clear(self) -> None:
        """Release all idle memory to the system."""
        with self._lock:
            self._idle.clear()
            self.idle_bytes = 0

    def renew_lock(self) -> None:
        """In a forked child: the lock may be held by a thread that does not exist."""
        self._lock = threading.RLock()


POOL: Final = BufferPool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=POOL.renew_lock)


def empty(shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """An uninitialised C-contiguous array; large ones use recycled memory."""
    size = math.prod(shape) * dtype.itemsize
    if size < SMALLEST:
        return np.empty(shape, dtype)
    block = POOL.take(size_class(size))
    lease = _lease_type(block.size).from_address(block.address)
    lease.block = block
    return np.ndarray(shape, dtype, lease)


@lru_cache(1024)
def size_class(size: int) -> int:
    """`size` rounded up to one of eight steps per power of two."""
    step = max(4096, 1 << max(0, size.bit_length() - 4))
    return -(-size // step) * step


@cache
def _lease_type(size: int) -> Any:
    """A ctypes array of `size` bytes that returns its block when finalised."""

    def end(
        self: Any,
        put: Callable[[Block], None] = POOL.put,
        finalizing: Callable[[], bool] = sys.is_finalizing,
    ) -> None:
        if not finalizing():
            put(self.block)

    fields = {"__slots__": ("block",), "__del__": end, "__doc__": "A lease."}
    return type("Lease", (ctypes.c_char * size,), fields)


def _map(size: int) -> mmap.mmap:
    """Private, zeroed, page-aligned anonymous memory."""
    private = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
    try:
        return mmap.mmap(-1, size, flags=private) if private else mmap.mmap(-1, size)
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(f"no memory for an array of {size} bytes") from error
