"""Keep arrays alive while kernels use them, for libraries that free out of order.

PyTorch and CuPy free memory in the order of the stream on which we compute. JAX uses
its own streams and reuses unreferenced memory for its next result, which our kernel may
still be reading.
"""

from __future__ import annotations

import ctypes
from collections import deque
from contextlib import suppress
from typing import Final

from tensorlang.errors import DeviceError
from tensorlang.runtime.cuda import driver as cuda_driver
from tensorlang.runtime.cuda.device import Device, Event

_MOST_HELD: Final = 64
_HELD: Final[dict[int, deque[tuple[Event, object]]]] = {}


def until_done(device: Device, stream: int, owners: object) -> None:
    """Keep arrays alive until the work enqueued on the stream has completed.

    They are released at a later call, with the device's lock held.
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
    """Whether an event has completed."""
    code: int = cuda_driver.library().cuEventQuery(ctypes.c_void_p(mark.handle))
    return code == 0
