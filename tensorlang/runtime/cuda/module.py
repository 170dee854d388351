"""Modules loaded into a GPU's context, and per-stream workspaces."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from tensorlang.errors import DeviceError, DeviceMemoryError
from tensorlang.runtime.cuda import driver as cuda_driver
from tensorlang.runtime.cuda import toolchain
from tensorlang.runtime.cuda.device import Device, Memory

if TYPE_CHECKING:
    from tensorlang.runtime.host_program import Data

ALIGN: Final = 256  # bytes: suffices for any access and copy
_DYNAMIC_SHARED: Final = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_WITHOUT_ASKING: Final = 48 << 10  # bytes of shared memory: more needs an attribute


class Module:
    """A cubin loaded into a context, and its kernels' handles.

    Args:
        device: The GPU.
        cubin: The machine code.
        launches: Names of the kernels, and their bytes of dynamic shared memory.

    Attributes:
        handles: Kernel handles by name.
        table: Address of the array of kernel handles.

    Raises:
        DeviceError: the driver rejects the code, e.g. for another architecture.
    """

    def __init__(self, device: Device, cubin: bytes, launches: Sequence[Data]) -> None:
        self.device: Final = device
        self._module = ctypes.c_void_p()
        with device.lock, device.current():
            self._load(cubin)
            handles = [self._function(launch) for launch in launches]
            named = (str(launch["name"]) for launch in launches)
            self.handles: Final = dict(zip(named, handles, strict=True))
        self._handles = (ctypes.c_void_p * len(handles))(*handles)
        self.table: Final = ctypes.addressof(self._handles)

    def _load(self, cubin: bytes) -> None:
        try:
            cuda_driver.call("cuModuleLoadData", ctypes.byref(self._module), cubin)
        except DeviceMemoryError:
            raise
        except DeviceError as error:
            made = DeviceError(
                f"{error}; the code was made by {toolchain.versions()}: install a "
                "driver that is as new, or set CUDA_HOME to an older toolkit"
            )
            made.lost = error.lost
            raise made from None

    def _function(self, launch: Data) -> int:
        function = ctypes.c_void_p()
        cuda_driver.call(
            "cuModuleGetFunction",
            ctypes.byref(function),
            self._module,
            str(launch["name"]).encode(),
        )
        shared = launch.get("dynamic_shared", 0)
        if shared > _WITHOUT_ASKING:
            cuda_driver.call("cuFuncSetAttribute", function, _DYNAMIC_SHARED, shared)
        return function.value or 0


class Workspace:
    """Scratch memory shared by consecutive calls on one stream.

    A call that is captured into a graph has memory that belongs to the graph: it is
    allocated and freed in the graph itself.

    Attributes:
        place: For compiled code, the address of the stream, and of the begin and end of
            its memory.
    """

    def __init__(self, device: Device, stream: int) -> None:
        self._device = device
        self._words = (ctypes.c_uint64 * 3)(stream)
        self.place: Final = ctypes.addressof(self._words)
        self._memory: Memory | None = None
        self._of_graph: Memory | None = None

    def take(
        self, sizes: Iterable[int], stream: int, *, captured: bool = False
    ) -> list[int]:
        """Addresses of blocks of these sizes, valid until the next call on the stream.

        Args:
            sizes: Bytes of each block.
            stream: CUDA stream.
            captured: Whether the stream is being captured; the blocks are valid until
                `release`.

        Raises:
            DeviceMemoryError: out of device memory.
        """
        whole = [-(-size // ALIGN) * ALIGN for size in sizes]
        *starts, end = accumulate(whole, initial=0)
        if captured:
            self._of_graph = Memory(self._device, end, stream) if end else None
        elif end and (self._memory is None or self._memory.size < end):
            self._memory = None  # freed first: both may not fit
            self._words[1:] = [0, 0]
            self._memory = Memory(self._device, end, stream)
            first = self._memory.address
            self._words[1:] = [first, first + self._memory.size]
        held = self._of_graph if captured else self._memory
        first = held.address if held is not None else 0
        return [first + start for start in starts]

    def release(self) -> None:
        """Free what a captured call took, in its graph."""
        self._of_graph = None


_WORKSPACES: Final[dict[tuple[int, int], Workspace]] = {}


def workspace(device: Device, stream: int) -> Workspace:
    """The workspace of a stream."""
    key = (device.index, stream)
    if key not in _WORKSPACES:
        _WORKSPACES.setdefault(key, Workspace(device, stream))
    return _WORKSPACES[key]
