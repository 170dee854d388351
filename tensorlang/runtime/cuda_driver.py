"""CUDA's driver: the entries of `libcuda` that are called, and their errors.

PyCUDA opens the devices (`cuda_device`), but gives no address of a kernel away, takes
no stream that another library made, and has no graphs: these are the driver's own.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections import deque
from functools import cache
from typing import Final

from tensorlang.errors import DeviceError, DeviceMemoryError

LEGACY: Final = 0  # the default stream, as PyTorch uses it
_NO_MEMORY: Final = 2
_NOT_INITIALIZED: Final = 3
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


# kernels that were started last: what failed of them, CUDA tells later
STARTED: Final[deque[str]] = deque(maxlen=4)
# processes that opened a GPU: this one, or one that it was forked from
OPENED_BY: Final[set[int]] = set()


@cache
def library() -> ctypes.CDLL:
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


def call(name: str, *args: object) -> None:
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
    if code == _NOT_INITIALIZED and OPENED_BY - {os.getpid()}:
        said += (
            "; the GPU was used before this process was forked, and CUDA serves no "
            "child of a fork: start processes with 'spawn'"
        )
    lost = code in _LOST
    if lost:
        said += "; this process can no longer compute on that GPU, start a new one"
        if STARTED and not blocking():
            said += (
                f". Kernels started last: {', '.join(STARTED)}; with "
                "CUDA_LAUNCH_BLOCKING=1 the one that fails is named"
            )
    error = DeviceError(said)
    error.lost = lost
    return error


@cache
def blocking() -> bool:
    """Whether each start of a kernel is to wait for its end, to find one that fails."""
    return os.environ.get("CUDA_LAUNCH_BLOCKING") == "1"


def _said(code: int) -> str:
    """A code in the driver's words."""
    words = []
    for function in ("cuGetErrorName", "cuGetErrorString"):
        text = ctypes.c_char_p()
        if getattr(library(), function)(code, ctypes.byref(text)) == 0 and text.value:
            words.append(text.value.decode())
    return f"{words[0]} ({', '.join(words[1:])})" if words else f"error {code}"
