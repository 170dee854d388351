"""Fault codes that kernels report: words of host memory that they write.

The words are page-locked and mapped, so that reading what launches have reported so far
takes neither a copy nor a synchronisation. A fault is raised by the call that made it
if that call waits for its results, else by a later one: of any kernel with checks on
that GPU, or when an array is fetched from there.
"""

from __future__ import annotations

import ctypes
from typing import Final

from tensorlang.errors import KernelError
from tensorlang.once import cache
from tensorlang.runtime.cuda import driver as cuda_driver
from tensorlang.runtime.cuda.device import Device

_WORDS: Final = 1024  # kernels beyond these share the last one
_MAPPED: Final = 2  # CU_MEMHOSTALLOC_DEVICEMAP


class _Reports(ctypes.Structure):
    """What was reported, for compiled code: words, and how many are in use."""

    _fields_ = (("count", ctypes.c_int64), ("words", ctypes.c_void_p))


class Faults:
    """The words of a GPU, one for each of its kernels with checks.

    Attributes:
        reports: The address of their count and address.
    """

    def __init__(self, device: Device) -> None:
        self._reports = _Reports()
        self.reports: Final = ctypes.addressof(self._reports)
        self._device = device
        self._there = 0
        self._words: ctypes.Array[ctypes.c_int32] | None = None
        self._names: Final[list[str]] = []

    def _allocate(self) -> None:
        host, there = ctypes.c_void_p(), ctypes.c_uint64()
        size = _WORDS * ctypes.sizeof(ctypes.c_int32)
        with self._device.current():
            cuda_driver.call("cuMemHostAlloc", ctypes.byref(host), size, _MAPPED)
            cuda_driver.call(
                "cuMemHostGetDevicePointer_v2", ctypes.byref(there), host, 0
            )
        assert host.value
        ctypes.memset(host.value, 0, size)
        self._words = (ctypes.c_int32 * _WORDS).from_address(host.value)
        self._there, self._reports.words = there.value, host.value

    def word(self, kernel: str) -> int:
        """The device address of a word for a kernel of this name."""
        if self._words is None:
            self._allocate()
        if len(self._names) < _WORDS:
            self._names.append(kernel)
            self._reports.count = len(self._names)
        return self._there + (len(self._names) - 1) * ctypes.sizeof(ctypes.c_int32)

    def look(self, asking: str = "") -> None:
        """Raise and forget what was reported since the last look.

        Args:
            asking: The kernel whose call has just completed, if one has.

        Raises:
            KernelError: a kernel has reported a fault.
        """
        words = self._words
        for at, name in enumerate(self._names if words else ()):
            assert words is not None
            if code := words[at]:
                words[at] = 0
                when = "" if name == asking else " in an earlier call"
                error = KernelError(
                    f"{name} reported fault {code}{when}: a check on its data failed"
                )
                error.code = code
                raise error


@cache
def faults_of(device: Device) -> Faults:
    """The words of a GPU."""
    return Faults(device)
