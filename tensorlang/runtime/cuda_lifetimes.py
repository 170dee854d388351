"""Arrays whose libraries free them in an order of their own: held until we are done.

PyTorch's and CuPy's memory is freed in the order of the stream on which we compute.
JAX's is not: it computes on streams of its own, and takes memory that nobody holds for
its next result, which our kernel may still be reading.
"""

from __future__ import annotations

import ctypes
from collections import deque
from contextlib import suppress
from typing import Final

from tensorlang.errors import DeviceError
from tensorlang.runtime import cuda_driver
from tensorlang.runtime.cuda_device import Device, Event

_MOST_HELD: Final = 64
_HELD: Final[dict[int, deque[tuple[Event, object]]]] = {}


def until_done(device: Device, stream: int, owners: object) -> None:
    """Hold on to arrays until what the stream was given has ended.

    They are let go at a later call, the device's lock held.
    """
    held = _HELD.setdefault(device.index, deque())
    mark = Event(device)
    mark.record(stream)
    held.append((mark, owners))
    while len(held) > 1 and (len(held) > _MOST_HELD or _ended(held[0][0])):
        first, _ = held[0]
        with suppress(DeviceError):
            cuda_driver.call("cuEventSynchronize", first.handle)
        held.popleft()


def _ended(mark: Event) -> bool:
    """Whether a mark was reached."""
    code: int = cuda_driver.library().cuEventQuery(ctypes.c_void_p(mark.handle))
    return code == 0
