"""Arrays next to protected pages, so that out-of-bounds accesses fault.

Each array lies flush against one of two inaccessible pages; the rest of its own last
page holds a pattern that must survive. Accesses outside are thus caught by the
processor (the worker dies and the candidate counts as crashed) or, if written, by the
pattern.

    after:   | protected | pattern, array | protected |
    before:  | protected | array, pattern | protected |
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Final, Literal

import numpy as np

from tensorlang.runtime.arrays.host_arrays import Array

Edge = Literal["before", "after"]
EDGES: Final[tuple[Edge, ...]] = ("after", "before")
CANARY: Final = 0xA5
POISON: Final = 0xCB
_NO_ACCESS: Final = 0


class Guarded:
    """One array between protected pages.

    Args:
        shape: The array's shape.
        edge: The side on which the protected page is adjacent.

    Attributes:
        array: C-contiguous, of the given shape and dtype.
    """

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype, edge: Edge = "after"
    ) -> None:
        page = mmap.PAGESIZE
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        room = max(-(-size // page), 1) * page
        self._memory = mmap.mmap(-1, room + 2 * page)
        whole = np.frombuffer(self._memory, np.uint8)
        for offset in (0, page + room):
            _forbid(whole.ctypes.data + offset, page)
        inside = whole[page : page + room]
        first = room - size if edge == "after" else 0
        self._pattern = inside[:first] if edge == "after" else inside[size:]
        self.arm()
        self.edge: Final = edge
        self.array: Array = inside[first : first + size].view(dtype).reshape(shape)

    def arm(self) -> None:
        """Write the pattern."""
        self._pattern[:] = CANARY

    @property
    def intact(self) -> bool:
        """Whether the pattern is unchanged."""
        return bool((self._pattern == CANARY).all())

    def poison(self) -> None:
        """Fill the array with bytes that no kernel writes by chance."""
        self.array.reshape(-1).view(np.uint8)[:] = POISON


def _forbid(address: int, size: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (ctypes.c_void_p(address), ctypes.c_size_t(size), _NO_ACCESS)
    if libc.mprotect(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mprotect: {os.strerror(code)}")
