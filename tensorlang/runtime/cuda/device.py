"""GPUs: primary contexts, which PyTorch, JAX and CuPy share; memory, events."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from contextlib import suppress
from typing import Final

from tensorlang import nvidia
from tensorlang.errors import DeviceError, DeviceMemoryError
from tensorlang.once import cache, cached_property
from tensorlang.runtime.cuda import driver as cuda_driver

# CUmemPoolProps: allocation type, handle types, location type and id, ...
_POOL_WORDS: Final = 88 // 4
_PINNED: Final = 1  # CU_MEM_ALLOCATION_TYPE_PINNED
_ON_DEVICE: Final = 1  # CU_MEM_LOCATION_TYPE_DEVICE
_RELEASE_THRESHOLD: Final = 4  # CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
_KEPT_BYTES: Final = 1 << 30


class Device:
    """A GPU with its primary context; `lock` is held while a call is enqueued.

    Attributes:
        index: Device ordinal.
        context: Handle of the primary context.
        methods_of_lock: Its methods, for compiled code.
    """

    def __init__(self, index: int) -> None:
        self.index: Final = index
        try:
            self.context: Final = nvidia.gpus()[index].primary_context()
        except DeviceError as error:
            raise type(error)(f"cuda:{index} cannot be opened: {error}") from error
        cuda_driver.OPENED_BY.add(os.getpid())
        self.lock: Final = threading.RLock()
        self.methods_of_lock: Final = (self.lock.acquire, self.lock.release)

    def current(self) -> Current:
        """Make the context this thread's current one for the duration of a `with`."""
        return Current(self.context)

    @cached_property
    def pool(self) -> int | None:
        """Private memory pool; None if the driver has no pools.

        The device's default pool trims itself at every synchronisation, and changing
        its settings would affect other libraries. Without pools, freeing memory
        synchronises the device.
        """
        settings = (ctypes.c_uint32 * _POOL_WORDS)()
        settings[0], settings[2], settings[3] = _PINNED, _ON_DEVICE, self.index
        made, kept = ctypes.c_void_p(), ctypes.c_uint64(_KEPT_BYTES)
        with suppress(DeviceError):
            cuda_driver.call(
                "cuMemPoolCreate", ctypes.byref(made), ctypes.byref(settings)
            )
            cuda_driver.call(
                "cuMemPoolSetAttribute", made, _RELEASE_THRESHOLD, ctypes.byref(kept)
            )
        return made.value

    def owner_of(self, address: int) -> int:
        """Handle of the context in which an address was allocated.

        0 if there is none: memory from pools belongs to the device.
        """
        context = ctypes.c_void_p()
        with self.current(), suppress(DeviceError):
            cuda_driver.call("cuPointerGetAttribute", ctypes.byref(context), 1, address)
        return context.value or 0


class Current:
    """Makes a context current for this thread; restores the previous one on exit.

    Args:
        context: Its handle.
    """

    __slots__ = ("_context", "_held", "_pushed")

    def __init__(self, context: int) -> None:
        self._context = context
        self._held = ctypes.c_void_p()
        self._pushed = False

    def __enter__(self) -> None:
        cuda_driver.call("cuCtxGetCurrent", ctypes.byref(self._held))
        if self._held.value != self._context:
            cuda_driver.call("cuCtxPushCurrent_v2", self._context)
            self._pushed = True

    def __exit__(self, *_: object) -> None:
        if self._pushed:
            with suppress(DeviceError):
                cuda_driver.call("cuCtxPopCurrent_v2", ctypes.byref(self._held))


@cache
def device(index: int) -> Device:
    """A GPU; its primary context is retained once per process."""
    return Device(index)


class Memory:
    """GPU memory, freed in stream order when it is no longer referenced."""

    def __init__(self, of: Device, size: int, stream: int = cuda_driver.LEGACY) -> None:
        self._device, self._stream = of, stream
        self.address: int = 0  # device address
        self.size: Final = max(size, 1)  # size in bytes
        with of.current():
            self.address = self._allocated()

    def _allocated(self) -> int:
        place, pool = ctypes.c_uint64(), self._device.pool
        try:
            if pool is None:
                cuda_driver.call("cuMemAlloc_v2", ctypes.byref(place), self.size)
            else:
                cuda_driver.call(
                    "cuMemAllocFromPoolAsync",
                    ctypes.byref(place),
                    self.size,
                    pool,
                    self._stream,
                )
        except DeviceMemoryError as error:
            raise DeviceMemoryError(f"{self._shortage()}: {error}") from None
        return place.value

    def _shortage(self) -> str:
        """Error sentence: bytes requested, total and free."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        with suppress(DeviceError):
            cuda_driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return (
            f"{_mib(self.size)} do not fit on cuda:{self._device.index}, where "
            f"{_mib(free.value)} of {_mib(total.value)} are free"
        )

    def __int__(self) -> int:
        return self.address

    __index__ = __int__

    def __del__(self) -> None:
        address, self.address = self.address, 0
        if address and not sys.is_finalizing():
            with suppress(Exception), self._device.current():
                if self._device.pool is None:
                    cuda_driver.call("cuMemFree_v2", address)
                else:
                    cuda_driver.call("cuMemFreeAsync", address, self._stream)


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"


class Event:
    """A CUDA event."""

    def __init__(self, of: Device, *, timing: bool = False) -> None:
        made = ctypes.c_void_p()
        with of.current():
            cuda_driver.call("cuEventCreate", ctypes.byref(made), 0 if timing else 2)
        self._device: Final = of
        self.handle: Final = made.value

    def record(self, stream: int) -> None:
        """Record the event on a stream."""
        cuda_driver.call("cuEventRecord", self.handle, stream)

    def awaited_by(self, stream: int) -> None:
        """Make a stream wait for the event."""
        cuda_driver.call("cuStreamWaitEvent", stream, self.handle, 0)

    def seconds_since(self, earlier: Event) -> float:
        """Seconds between two events; blocks until this one has completed."""
        found = ctypes.c_float()
        cuda_driver.call("cuEventSynchronize", self.handle)
        cuda_driver.call(
            "cuEventElapsedTime", ctypes.byref(found), earlier.handle, self.handle
        )
        return found.value * 1e-3

    def __del__(self) -> None:
        if not sys.is_finalizing():
            with suppress(Exception), self._device.current():
                cuda_driver.call("cuEventDestroy_v2", self.handle)
