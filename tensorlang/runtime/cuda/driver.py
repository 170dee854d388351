"""The CUDA driver API: the functions of `libcuda` that are called, and their errors.

PyCUDA or cuda-bindings open the devices (`tensorlang.nvidia`). All else is asked of the
driver directly: PyCUDA exposes no kernel addresses, accepts no streams of other
libraries, and has no graphs.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Final

from tensorlang.errors import DeviceError, DeviceMemoryError
from tensorlang.once import cache

LEGACY: Final = 0  # the legacy default stream, as in PyTorch
NEVER_CAPTURED: Final = (LEGACY, 1)  # 1 is its other name
_NO_MEMORY: Final = 2
_NOT_INITIALIZED: Final = 3
# sticky errors: the context is unusable afterwards, as CUDA documents for each
_LOST: Final = frozenset({214, 700, 702, 709, 710, *range(714, 720), 999})
_LIBRARY: Final = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"

_P = ctypes.c_void_p
_I = ctypes.c_int
_U = ctypes.c_uint
_S = ctypes.c_size_t
_U64 = ctypes.c_uint64
# the functions that are called, with their parameter types
FUNCTIONS: Final[dict[str, tuple[type, ...]]] = {
    "cuGetErrorName": (_I, _P),
    "cuGetErrorString": (_I, _P),
    "cuDeviceGet": (_P, _I),
    "cuDeviceGetPCIBusId": (_P, _I, _I),
    "cuCtxGetCurrent": (_P,),
    "cuCtxPushCurrent_v2": (_P,),
    "cuCtxPopCurrent_v2": (_P,),
    "cuModuleLoadData": (_P, _P),
    "cuModuleGetFunction": (_P, _P, ctypes.c_char_p),
    "cuModuleUnload": (_P,),
    "cuFuncSetAttribute": (_P, _I, _I),
    "cuLaunchKernel": (_P, *(_U,) * 7, _P, _P, _P),
    "cuMemPoolCreate": (_P, _P),
    "cuMemPoolSetAttribute": (_P, _I, _P),
    "cuMemAllocFromPoolAsync": (_P, _S, _P, _P),
    "cuMemFreeAsync": (_U64, _P),
    "cuMemAlloc_v2": (_P, _S),
    "cuMemFree_v2": (_U64,),
    "cuMemGetInfo_v2": (_P, _P),
    "cuMemHostAlloc": (_P, _S, _U),
    "cuMemHostGetDevicePointer_v2": (_P, _P, _U),
    "cuMemcpyHtoDAsync_v2": (_U64, _P, _S, _P),
    "cuMemcpyDtoHAsync_v2": (_P, _U64, _S, _P),
    "cuMemcpyDtoDAsync_v2": (_U64, _U64, _S, _P),
    "cuMemsetD8Async": (_U64, ctypes.c_ubyte, _S, _P),
    "cuPointerGetAttribute": (_P, _I, _U64),
    "cuStreamCreate": (_P, _U),
    "cuStreamSynchronize": (_P,),
    "cuStreamIsCapturing": (_P, _P),
    "cuStreamWaitEvent": (_P, _P, _U),
    "cuEventCreate": (_P, _U),
    "cuEventRecord": (_P, _P),
    "cuEventQuery": (_P,),
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


MOST_NOTED: Final = 4  # a power of two


class Started:
    """The last kernels launched: their errors are reported asynchronously.

    Attributes:
        address: Of the count of launches, and the numbers of the last kernels: 8 bytes
            each. Compiled code adds to them.
    """

    def __init__(self) -> None:
        self._ring = (ctypes.c_int64 * (1 + MOST_NOTED))()
        self._numbers: dict[str, int] = {}
        self.address: Final = ctypes.addressof(self._ring)

    def number(self, kernel: str) -> int:
        """The number of a kernel of this name."""
        return self._numbers.setdefault(kernel, len(self._numbers))

    def note(self, kernel: str) -> None:
        """Add a kernel that is launched."""
        count = self._ring[0]
        self._ring[1 + count % MOST_NOTED] = self.number(kernel)
        self._ring[0] = count + 1

    def clear(self) -> None:
        """Forget all launches."""
        self._ring[0] = 0

    def names(self) -> list[str]:
        """The last kernels launched, the latest one last."""
        count, names = self._ring[0], list(self._numbers)
        last = range(max(0, count - MOST_NOTED), count)
        return [names[self._ring[1 + at % MOST_NOTED]] for at in last]


STARTED: Final = Started()
# processes that opened a GPU: this one, or an ancestor that forked
OPENED_BY: Final[set[int]] = set()


@cache
def library() -> ctypes.CDLL:
    """The driver's library; DeviceError if it is not installed, or lacks a function."""
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
    """A driver function's address for compiled code; DeviceError if it is too old."""
    found = getattr(library(), name, None)
    if found is None:
        raise DeviceError(f"NVIDIA's driver has no {name}; install a newer one")
    place = ctypes.cast(found, ctypes.c_void_p).value
    assert place
    return place


def call(name: str, *args: object) -> None:
    """Call a driver function.

    Raises:
        DeviceMemoryError: out of device memory.
        DeviceError: any other error; `lost` if the context is unusable afterwards.
    """
    code = getattr(library(), name)(*args)
    if code:
        raise failed(name, code)


def failed(what: str, code: int) -> DeviceError:
    """The exception for a CUDA error code."""
    said = f"{what} failed: {_said(code)}"
    if code == _NO_MEMORY:
        return DeviceMemoryError(
            f"{said}; free arrays on the device, or compute in parts"
        )
    if code == _NOT_INITIALIZED and OPENED_BY - {os.getpid()}:
        said += (
            "; the GPU was used before this process was forked, and CUDA does not work "
            "in its children: start processes with 'spawn'"
        )
    lost = code in _LOST
    if lost:
        said += "; this process can no longer compute on that GPU, start a new one"
        names = STARTED.names()
        if names and not blocking():
            said += (
                f". Last kernels launched: {', '.join(names)}; with "
                "CUDA_LAUNCH_BLOCKING=1 the one that fails is named"
            )
    error = DeviceError(said)
    error.lost = lost
    return error


def capturing(stream: int) -> bool:
    """Whether its owner captures a stream into a CUDA graph."""
    if stream in NEVER_CAPTURED:
        return False
    status = ctypes.c_int()
    call("cuStreamIsCapturing", stream, ctypes.byref(status))
    return status.value != 0


@cache
def blocking() -> bool:
    """Whether to synchronise after every launch, so that a failing kernel is named."""
    return os.environ.get("CUDA_LAUNCH_BLOCKING") == "1"


def _said(code: int) -> str:
    """A code's name and description from the driver."""
    words = []
    for function in ("cuGetErrorName", "cuGetErrorString"):
        text = ctypes.c_char_p()
        if getattr(library(), function)(code, ctypes.byref(text)) == 0 and text.value:
            words.append(text.value.decode())
    return f"{words[0]} ({', '.join(words[1:])})" if words else f"error {code}"
