"""CUDA's driver: devices and contexts through PyCUDA, streams through its own entries.

PyCUDA opens the devices and holds their primary contexts, which PyTorch, JAX and CuPy
use, too. It gives no address of a kernel away, though, takes no stream that another
library made, and has no graphs: what needs these is called in `libcuda` itself.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Final

from tensorlang import devices
from tensorlang.errors import DeviceError, DeviceMemoryError

LEGACY: Final = 0  # the default stream, as PyTorch uses it
_NO_MEMORY: Final = 2
# after these a context is beyond use: CUDA says so of each
_LOST: Final = frozenset({214, 700, 702, 709, 710, *range(714, 720), 999})
_LIBRARY: Final = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"

_P, _I, _U, _S, _U64 = (
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_uint,
    ctypes.c_size_t,
    ctypes.c_uint64,
)
# each function that is called, with the types of its parameters
FUNCTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "cuGetErrorName": (_I, _P),
    "cuGetErrorString": (_I, _P),
    "cuCtxGetCurrent": (_P,),
    "cuCtxPushCurrent_v2": (_P,),
    "cuCtxPopCurrent_v2": (_P,),
    "cuModuleLoadData": (_P, _P),
    "cuModuleGetFunction": (_P, _P, ctypes.c_char_p),
    "cuModuleUnload": (_P,),
    "cuFuncSetAttribute": (_P, _I, _I),
    "cuMemAllocAsync": (_P, _S, _P),
    "cuMemFreeAsync": (_U64, _P),
    "cuMemcpyHtoDAsync_v2": (_U64, _P, _S, _P),
    "cuMemcpyDtoHAsync_v2": (_P, _U64, _S, _P),
    "cuMemcpyDtoDAsync_v2": (_U64, _U64, _S, _P),
    "cuMemsetD8Async": (_U64, ctypes.c_ubyte, _S, _P),
    "cuPointerGetAttribute": (_P, _I, _U64),
    "cuStreamCreate": (_P, _U),
    "cuStreamSynchronize": (_P,),
    "cuStreamWaitEvent": (_P, _P, _U),
    "cuEventCreate": (_P, _U),
    "cuEventRecord": (_P, _P),
    "cuEventSynchronize": (_P,),
    "cuEventElapsedTime": (_P, _P, _P),
    "cuEventDestroy_v2": (_P,),
    "cuStreamBeginCapture_v2": (_P, _I),
    "cuStreamEndCapture": (_P, _P),
    "cuGraphInstantiateWithFlags": (_P, _P, _U64),
    "cuGraphDestroy": (_P,),
    "cuGraphLaunch": (_P, _P),
    "cuGraphExecDestroy": (_P,),
}


@cache
def library() -> Any:
    """The driver's library.

    Raises:
        DeviceError: it is not installed, or older than what is called in it.
    """
    try:
        found = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise DeviceError(f"NVIDIA's driver is not installed: {error}") from error
    for name, types in FUNCTIONS.items():
        if not hasattr(found, name):
            raise DeviceError(
                f"NVIDIA's driver has no {name}; install one for CUDA 11.4 or newer"
            )
        function = getattr(found, name)
        function.argtypes, function.restype = types, ctypes.c_int
    return found


def address_of(name: str) -> int:
    """The address of a function that compiled code calls: `cuLaunchKernel`, ...

    Raises:
        DeviceError: the driver is older than the function.
    """
    found = getattr(library(), name, None)
    if found is None:
        raise DeviceError(f"NVIDIA's driver has no {name}; install a newer one")
    place = ctypes.cast(found, ctypes.c_void_p).value
    assert place
    return place


def call(name: str, *args: Any) -> None:
    """Call one of the driver's functions.

    Raises:
        DeviceMemoryError: the device has no memory left.
        DeviceError: it refuses, or fails; `lost` where its context is beyond use.
    """
    code = getattr(library(), name)(*args)
    if code:
        raise failed(name, code)


def failed(what: str, code: int) -> DeviceError:
    """The error of a call that gave a code."""
    said = f"{what} failed: {_said(code)}"
    if code == _NO_MEMORY:
        return DeviceMemoryError(
            f"{said}; free arrays on the device, or compute in parts"
        )
    lost = code in _LOST
    error = DeviceError(
        f"{said}; this process can no longer compute on that GPU, start a new one"
        if lost
        else said
    )
    error.lost = lost
    return error


def _said(code: int) -> str:
    """A code in the driver's words."""
    words = []
    for function in ("cuGetErrorName", "cuGetErrorString"):
        text = ctypes.c_char_p()
        if getattr(library(), function)(code, ctypes.byref(text)) == 0 and text.value:
            words.append(text.value.decode())
    return f"{words[0]} ({', '.join(words[1:])})" if words else f"error {code}"


class Device:
    """A GPU with its primary context; `lock` is held while a call is enqueued.

    Attributes:
        index: Its number.
        context: The primary context's handle.
    """

    def __init__(self, index: int) -> None:
        self.index: Final = index
        try:
            held = devices.cuda_handle(index).retain_primary_context()
        except Exception as error:
            raise _refused(error, index) from error
        # for good: at the end of the process PyCUDA would detach it, not release it,
        # with a warning, and perhaps before the last array is given back
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))
        self.context: Final = int(held.handle)
        self.lock: Final = threading.RLock()

    @contextmanager
    def current(self) -> Iterator[None]:
        """The context as this thread's current one, as whoever calls has left it."""
        held = ctypes.c_void_p()
        call("cuCtxGetCurrent", ctypes.byref(held))
        if held.value == self.context:
            yield
            return
        call("cuCtxPushCurrent_v2", self.context)
        try:
            yield
        finally:
            with suppress(DeviceError):
                call("cuCtxPopCurrent_v2", ctypes.byref(held))

    def owner_of(self, address: int) -> int:
        """The handle of the context in which an address was allocated.

        It is 0 where there is none: memory from pools is of the device.
        """
        context = ctypes.c_void_p()
        with self.current(), suppress(DeviceError):
            call("cuPointerGetAttribute", ctypes.byref(context), 1, address)
        return context.value or 0


def _refused(error: Exception, index: int) -> DeviceError:
    """PyCUDA's error as ours."""
    kind = DeviceMemoryError if type(error).__name__ == "MemoryError" else DeviceError
    return kind(f"cuda:{index} cannot be opened: {error}")


@cache
def device(index: int) -> Device:
    """A GPU; its primary context is retained once, for the life of the process."""
    return Device(index)


class Memory:
    """Memory of a GPU, given back in the order of its stream when nobody holds it.

    Attributes:
        address: Where it begins.
        size: Bytes.
    """

    def __init__(self, of: Device, size: int, stream: int = LEGACY) -> None:
        place = ctypes.c_uint64()
        self._device, self._stream = of, stream
        self.address: int = 0
        self.size: Final = max(size, 1)
        with of.current():
            call("cuMemAllocAsync", ctypes.byref(place), self.size, stream)
        self.address = place.value

    def __int__(self) -> int:
        return self.address

    __index__ = __int__

    def __del__(self) -> None:
        address, self.address = self.address, 0
        if address and not sys.is_finalizing():
            with suppress(Exception), self._device.current():
                call("cuMemFreeAsync", address, self._stream)


class Event:
    """A mark in a stream."""

    def __init__(self, of: Device, *, timing: bool = False) -> None:
        made = ctypes.c_void_p()
        with of.current():
            call("cuEventCreate", ctypes.byref(made), 0 if timing else 2)
        self._device: Final = of
        self.handle: Final = made.value

    def record(self, stream: int) -> None:
        """Mark what the stream was given until now."""
        call("cuEventRecord", self.handle, stream)

    def awaited_by(self, stream: int) -> None:
        """Have a stream wait for the mark."""
        call("cuStreamWaitEvent", stream, self.handle, 0)

    def seconds_since(self, earlier: Event) -> float:
        """The time between two marks, once this one is reached."""
        found = ctypes.c_float()
        call("cuEventSynchronize", self.handle)
        call("cuEventElapsedTime", ctypes.byref(found), earlier.handle, self.handle)
        return found.value * 1e-3

    def __del__(self) -> None:
        if not sys.is_finalizing():
            with suppress(Exception), self._device.current():
                call("cuEventDestroy_v2", self.handle)
