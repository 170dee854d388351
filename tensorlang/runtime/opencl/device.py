"""OpenCL contexts and queues, ours and the callers', and memory in them.

Host arrays are wrapped in place (`CL_MEM_USE_HOST_PTR`), which CPU drivers do without a
copy. Each device has one context and queue of ours, for host arrays; PyOpenCL arrays
are used in their own context, on their own queue.
"""

from __future__ import annotations

import ctypes
import os
import threading
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Final

import numpy as np

from tensorlang import devices, lazy, templates
from tensorlang.errors import CodegenError, DeviceError, DeviceMemoryError
from tensorlang.runtime import cache as store
from tensorlang.runtime.arrays.host_arrays import Array
from tensorlang.runtime.cpu import llvm

with lazy.modules(__name__):  # only where a kernel is built for it
    import pyopencl as cl

if TYPE_CHECKING:
    import pyopencl

_OPTIONS: Final = ("-cl-std=CL1.2",)
_EXACT: Final = "-cl-fp32-correctly-rounded-divide-sqrt"
# PoCL's CPU devices compute in host memory: results need no mapping to be visible
_IN_PLACE: Final = "Portable Computing Language"
_MOST_HELD: Final = 256  # cached buffers over host memory
_NO_MEMORY: Final = (-4, -5, -6)  # object allocation, out of resources, of host memory

# processes that created a context: their forked children have no driver threads
_OPENED_BY: Final[set[int]] = set()


def check_process() -> None:
    """DeviceError in a fork of a process with OpenCL, where launches never complete."""
    if _OPENED_BY - {os.getpid()}:
        raise DeviceError(
            "OpenCL was used before this process was forked, and its drivers do not "
            "work in its children: start processes with 'spawn'"
        )


class Context:
    """A device in a context, with a queue; `lock` is held around every use.

    Attributes:
        cl: The `pyopencl` module.
        handle: The `pyopencl.Device`.
        context, queue: PyOpenCL's context and queue.
        index: Number of the device among all.
        in_place: Whether the device computes in host memory, so nothing is mapped.
    """

    def __init__(
        self,
        cl: ModuleType,
        handle: pyopencl.Device,
        context: pyopencl.Context,
        index: int,
    ) -> None:
        self.cl: Final = cl
        self.handle: Final = handle
        self.context: Final = context
        self.index: Final = index
        self.queue: Final = cl.CommandQueue(context, handle)
        self.lock: Final = threading.RLock()
        is_cpu = bool(handle.type & cl.device_type.CPU)
        self.in_place: Final = is_cpu and handle.platform.name == _IN_PLACE
        self._held: dict[tuple[int, int], pyopencl.Buffer] = {}
        _OPENED_BY.add(os.getpid())

    def build(self, source: str | bytes) -> pyopencl.Program:
        """A program, from source or a binary of the driver.

        Raises:
            CodegenError: the driver rejects it; the message includes its own.
        """
        check_process()
        cl = self.cl
        exact = (_EXACT,) if self._rounds_exactly() else ()
        try:
            if isinstance(source, bytes):
                program = cl.Program(self.context, [self.handle], [source])
            else:
                program = cl.Program(self.context, source)
            return program.build([*_OPTIONS, *exact], cache_dir=False)
        except cl.RuntimeError as error:
            raise CodegenError(f"OpenCL rejects the generated code: {error}") from error

    def _rounds_exactly(self) -> bool:
        flags = self.handle.single_fp_config
        return bool(flags & self.cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT)

    def over(self, array: Array) -> pyopencl.Buffer:
        """A buffer over the memory of a non-empty host array.

        Where the device computes in host memory, a buffer is just an address and a
        length, and buffers are cached by them.
        """
        place = (array.ctypes.data, array.nbytes)
        held = self._held.get(place)
        if held is None:
            flags = self.cl.mem_flags
            held = self.cl.Buffer(
                self.context, flags.READ_WRITE | flags.USE_HOST_PTR, hostbuf=_raw(array)
            )
            if self.in_place:
                if len(self._held) >= _MOST_HELD:
                    self._held.clear()
                self._held[place] = held
        return held

    def allocate(self, size: int) -> pyopencl.Buffer:
        """A buffer in the device's memory; DeviceMemoryError if out of it."""
        flags = self.cl.mem_flags.READ_WRITE
        try:
            return self.cl.Buffer(self.context, flags, max(size, 1))
        except self.cl.Error as error:
            raise DeviceMemoryError(
                f"{self.handle.name.strip()} has no memory for {size} bytes ({error}); "
                "free arrays there, or compute in parts"
            ) from error

    def bring_back(
        self, buffer: pyopencl.Buffer, array: Array, queue: pyopencl.CommandQueue
    ) -> None:
        """Make the device's writes visible in a host array, by mapping the buffer."""
        if self.in_place:
            return
        cl, raw = self.cl, _raw(array)
        mapped, _ = cl.enqueue_map_buffer(
            queue, buffer, cl.map_flags.READ, 0, raw.shape, raw.dtype, is_blocking=True
        )
        if mapped.ctypes.data != raw.ctypes.data:
            np.copyto(raw, mapped)
        mapped.base.release(queue)


def _raw(array: Array) -> Array:
    """The bytes of a contiguous array; PyOpenCL requires them to be writable."""
    kind = ctypes.c_uint8 * array.nbytes
    return np.ctypeslib.as_array(kind.from_address(array.ctypes.data))


@cache
def of_target(index: int) -> Context:
    """Our own context on a device."""
    handle = devices.handles()[index]
    return Context(cl, handle, cl.Context([handle]), index)


_CALLERS: Final[dict[tuple[int, int], Context]] = {}


def of_caller(context: pyopencl.Context, handle: pyopencl.Device) -> Context:
    """The context of a PyOpenCL array; DeviceError if its device is no target's."""
    key = (context.int_ptr, handle.int_ptr)
    found = _CALLERS.get(key)
    if found is None:
        known = [one.int_ptr for one in devices.handles()]
        if handle.int_ptr not in known:
            raise DeviceError(f"{handle.name.strip()} is not a device with a target")
        index = known.index(handle.int_ptr)
        found = _CALLERS[key] = Context(cl, handle, context, index)
    return found


def failed(name: str, code: int) -> DeviceError:
    """The error of a launch that failed."""
    if code == -1:
        return DeviceError(
            f"{name}: a launch has more blocks than a device allows; compute in parts"
        )
    kind = DeviceMemoryError if code in _NO_MEMORY else DeviceError
    said = _status(code)
    return kind(f"{name}: OpenCL could not start a launch: {said}")


def _status(code: int) -> str:
    names = vars(cl.status_code).items()
    found = [name for name, value in names if isinstance(value, int) and value == code]
    return found[0] if found else f"error {code}"


# ------------------------------------------------------------- launches


def kernel_data(
    kernel: pyopencl.Kernel, sizes: list[int]
) -> ctypes.Array[ctypes.c_uint64]:
    """The struct that `templates/opencl_start.ll.j2` takes as a kernel."""
    library = _library()
    functions = (library.clSetKernelArg, library.clEnqueueNDRangeKernel)
    places = (ctypes.cast(function, ctypes.c_void_p).value for function in functions)
    words = [kernel.int_ptr, *places, len(sizes), *sizes]
    return (ctypes.c_uint64 * len(words))(*words)


@cache
def _library() -> ctypes.CDLL:
    """The OpenCL library that PyOpenCL is linked to."""
    return ctypes.CDLL(cl._cl.__file__)  # noqa: SLF001 - links the OpenCL library


@llvm.locked
def start_address() -> int:
    """Address of the function with which launchers start a kernel."""
    return _start()["tensorlang.opencl_start"]


@cache
def _start() -> llvm.Library:
    key = store.key_of("opencl start", llvm.versions())
    entry = store.load(key)
    if entry is None:
        code = llvm.compile_quickly(templates.render("opencl_start.ll.j2"))
        entry = store.Entry({}, {"object": code})
        store.save(key, entry)
    return llvm.link([entry.blobs["object"]], ("tensorlang.opencl_start",))
