"""A kernel on an OpenCL device: its program in each context, and its calls."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang.errors import ArgumentError, DeviceError, TargetError
from tensorlang.ir.dtypes import DType
from tensorlang.once import cached_property
from tensorlang.runtime import calling
from tensorlang.runtime.arrays.device_arrays import DeviceArray, PlacedArray
from tensorlang.runtime.arrays.foreign_arrays import as_placed
from tensorlang.runtime.call_cache import CallCache
from tensorlang.runtime.cpu import launcher
from tensorlang.runtime.device_kernel import DeviceKernel
from tensorlang.runtime.kernel import Artifact
from tensorlang.runtime.opencl.device import (
    Context,
    check_process,
    failed,
    kernel_data,
    of_target,
    start_address,
)
from tensorlang.targets import Target

if TYPE_CHECKING:
    import pyopencl as cl

    from tensorlang.runtime.host_program import Data

_POINTER: Final = ctypes.sizeof(ctypes.c_void_p)


class _Program:
    """A kernel's program in one context, with its memory there."""

    def __init__(self, context: Context, code: bytes, host: Data) -> None:
        self.context: Final = context
        self._program = context.build(code)
        launches = host["launches"]
        self.kernels = [
            context.cl.Kernel(self._program, launch["name"]) for launch in launches
        ]
        self._data = [
            kernel_data(kernel, [_bytes_of(arg) for arg in launch["args"]])
            for kernel, launch in zip(self.kernels, launches, strict=True)
        ]
        pointers = map(ctypes.addressof, self._data)
        self._pointers = (ctypes.c_void_p * len(launches))(*pointers)
        self.table: Final = ctypes.addressof(self._pointers)
        self._reported: Final = np.zeros(1, np.int32)
        self._faults = context.over(self._reported)
        self._temporaries: list[cl.Buffer] = []

    @property
    def faults(self) -> int:
        """Handle of the buffer where checks report."""
        return int(self._faults.int_ptr)

    def report(self, queue: cl.CommandQueue) -> int:
        """Synchronise; return and reset the fault code."""
        self.context.bring_back(self._faults, self._reported, queue)
        queue.finish()
        code = int(self._reported[0])
        if code:
            self._reported[0] = 0
            if not self.context.in_place:
                self._faults = self.context.over(self._reported)
        return code

    def temporaries(self, sizes: Sequence[int]) -> list[int]:
        """Handles of buffers of at least these sizes, kept for further calls."""
        while len(self._temporaries) < len(sizes):
            self._temporaries.append(self.context.allocate(0))
        for at, size in enumerate(sizes):
            if self._temporaries[at].size < size:
                self._temporaries[at] = self.context.allocate(size)
        return [buffer.int_ptr for buffer in self._temporaries]


def _bytes_of(arg: Sequence[Any]) -> int:
    """Size of a launch's argument: a buffer's handle, or a scalar."""
    if arg[0] != "scalar":
        return _POINTER
    return max(DType(arg[2]).bits // 8, 1)


class OpenCLKernel(DeviceKernel):
    """A kernel that runs on an OpenCL device; see `Kernel`."""

    def __init__(self, artifact: Artifact, target: Target) -> None:
        super().__init__(artifact, target)
        self._host, code = launcher.unpacked(artifact.wrapper_code)
        self._launcher = launcher.Launcher(self.name, self._host, code)
        self._checks = any(["faults"] in x["args"] for x in self._host["launches"])
        self._cache = CallCache(self.signature)
        self._programs: dict[tuple[int, int], _Program] = {}
        self._start = start_address()
        self._own = self._program(of_target(target.index))

    @property
    def asm(self) -> str:
        """Not available: OpenCL's binaries are opaque, a TargetError."""
        raise TargetError(
            f"{self.target.name} does not show machine code; see .source, its OpenCL C"
        )

    @cached_property
    def resources(self) -> Mapping[str, int]:
        """Launches, program bytes, and the largest local and private memory."""
        context = self._own.context
        info = context.cl.kernel_work_group_info
        local, private = (
            max(k.get_work_group_info(what, context.handle) for k in self._own.kernels)
            for what in (info.LOCAL_MEM_SIZE, info.PRIVATE_MEM_SIZE)
        )
        return {
            "launches": len(self._own.kernels),
            "object_bytes": len(self.artifact.object_code),
            "shared_bytes": local,
            "private_bytes": private,
        }

    def _program(self, context: Context) -> _Program:
        """The kernel's program in a context, built once."""
        key = (context.context.int_ptr, context.handle.int_ptr)
        found = self._programs.get(key)
        if found is None:
            with context.lock:
                made = _Program(context, self.artifact.object_code, self._host)
            found = self._programs[key] = made
        return found

    def _slow(self, *args: object) -> None:
        """Check the arguments and launch; synchronise if there are host arrays."""
        check_process()
        call = self._cache.call(args)
        if call is None:
            call = calling.prepare(self.signature, args, as_placed)
            self._cache.keep(args, call)
        there = [array for array in call.arrays if isinstance(array, DeviceArray)]
        program, queue = self._own, self._own.context.queue
        if there:
            program, queue = self._where(there)
        wait = len(there) < len(call.arrays)
        try:
            with program.context.lock:
                code = self._run(call, program, queue, wait=wait)
        except program.context.cl.Error as error:
            raise DeviceError(f"{self.name}: OpenCL failed: {error}") from error
        for target, source in call.back:
            np.copyto(target, source)
        if code:
            self._fault(code)

    def _where(self, there: Sequence[DeviceArray]) -> tuple[_Program, cl.CommandQueue]:
        """The program in the arrays' context, and the first array's queue."""
        first = there[0]
        for array in there:
            if (
                array.place.name != self.target.name
                or array.place.key != first.place.key
            ):
                raise ArgumentError(
                    f"{self.name} runs on {self.target.name}, and an array is in "
                    f"another context, on {array.place.name}; move it there"
                )
        context: Context = first.place.context  # type: ignore[attr-defined]
        return self._program(context), first.stream

    def _run(
        self,
        call: calling.Call,
        program: _Program,
        queue: cl.CommandQueue,
        *,
        wait: bool,
    ) -> int:
        held = [self._buffer(array, program.context) for array in call.arrays]
        handles = [0 if buffer is None else buffer.int_ptr for buffer in held]
        block = calling.block_of(self.signature, call, handles)
        place = ctypes.addressof(block)
        sizes = self._launcher.sizes(place) if self._launcher.temporaries else ()
        code = self._launcher(
            place,
            program.temporaries(sizes),
            program.faults,
            program.table,
            self._start,
            queue.int_ptr,
        )
        if code:
            queue.finish()
            raise failed(self.name, code)
        for spec, array, buffer in zip(
            self.signature.buffers, call.arrays, held, strict=True
        ):
            if spec.written and isinstance(array, np.ndarray) and buffer is not None:
                program.context.bring_back(buffer, array, queue)
        if self._checks:
            return program.report(queue)
        if wait:
            queue.finish()
        return 0

    @staticmethod
    def _buffer(array: PlacedArray, context: Context) -> cl.Buffer | None:
        """Device memory of an array; None if it is empty."""
        if not array.nbytes:
            return None
        if isinstance(array, DeviceArray):
            return array.owner[0]
        return context.over(array)
