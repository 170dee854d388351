"""Arrays that end where memory ends: one element too far is a fault, not a surprise.

Each array lies flush against a page that may not be touched, and before it stands a
pattern that must survive. What a kernel writes outside is so either caught by the
processor (the worker dies, and the candidate is filed as crashed) or seen here.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
CANARY: Final = 0xA5
POISON: Final = 0xCB
_NO_ACCESS: Final = 0


class Guarded:
    """One array between a canary and a forbidden page.

    Attributes:
        array: C-contiguous, of the given shape and dtype, ending at the last byte.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        page = mmap.PAGESIZE
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        room = -(-size // page) * page + page  # at least a page of canary
        self._memory = mmap.mmap(-1, room + page)
        whole = np.frombuffer(self._memory, np.uint8)
        _forbid(whole.ctypes.data + room, page)
        self._canary = whole[: room - size]
        self._canary[:] = CANARY
        self.array: Array = whole[room - size : room].view(dtype).reshape(shape)

    @property
    def intact(self) -> bool:
        """Whether nothing was written in front of the array."""
        return bool((self._canary == CANARY).all())

    def poison(self) -> None:
        """Fill the array with bytes that no kernel writes by chance."""
        self.array.reshape(-1).view(np.uint8)[:] = POISON


def _forbid(address: int, size: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (ctypes.c_void_p(address), ctypes.c_size_t(size), _NO_ACCESS)
    if libc.mprotect(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mprotect: {os.strerror(code)}")
