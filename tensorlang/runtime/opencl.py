"""Kernels for OpenCL devices, through PyOpenCL.

Arrays in host memory are used where they lie (`CL_MEM_USE_HOST_PTR`), which a CPU's
driver does without a copy. A queue and its context are made once a device, and used by
one thread at a time. What a kernel needs beside its arrays it keeps from call to call.
"""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tensorlang import devices
from tensorlang.errors import CodegenError, TargetError
from tensorlang.ir.dtypes import NAMES, DType
from tensorlang.runtime import calling, host_program
from tensorlang.runtime.kernel import Artifact, Kernel
from tensorlang.runtime.signature import Signature
from tensorlang.targets import Target

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Function

_OPTIONS: Final = ("-cl-std=CL1.2",)
_EXACT: Final = "-cl-fp32-correctly-rounded-divide-sqrt"
# its CPU devices compute in the host's own memory: nothing has to be mapped to be seen
_IN_PLACE: Final = "Portable Computing Language"


def versions(target: Target) -> str:
    """The driver whose compiled programs these are."""
    return f"opencl {target.device} {target.driver}"


def lower(function: Function, target: Target) -> Function:
    """The function as launches."""
    from tensorlang.codegen.simt import lower as lowering  # noqa: PLC0415 - not warm

    return lowering.lower(function, target)


def render(function: Function, target: Target, knobs: Mapping[str, Any]) -> str:
    """The OpenCL C of a lowered function."""
    from tensorlang.codegen.c_family import render as printing  # noqa: PLC0415 - same

    return printing.render(function, target, knobs)


def compiled(
    source: str, lowered: Function, signature: Signature, target: Target
) -> tuple[bytes, bytes]:
    """The device's program for a source, and what the host runs, as JSON.

    Raises:
        CodegenError: the driver refuses the source; the message has its own words.
    """
    from tensorlang.codegen.simt.host import host_program as made  # noqa: PLC0415

    del signature
    device = _device(target.index)
    with device.lock:
        program = device.build(source)
        binary = program.get_info(device.cl.program_info.BINARIES)[0]
    return bytes(binary), json.dumps(made(lowered)).encode()


@dataclass(frozen=True)
class _Device:
    """A device with its context and queue; `lock` is held around every use."""

    cl: Any
    handle: Any
    context: Any
    queue: Any
    lock: threading.RLock = field(default_factory=threading.RLock)

    @cached_property
    def in_place(self) -> bool:
        """Whether it computes in host memory itself, so that nothing need be mapped."""
        is_cpu = bool(self.handle.type & self.cl.device_type.CPU)
        return is_cpu and self.handle.platform.name == _IN_PLACE

    def build(self, source: str | bytes) -> Any:
        """A program, from source or from the driver's own binary."""
        cl = self.cl
        exact = (_EXACT,) if self._rounds_exactly() else ()
        try:
            if isinstance(source, bytes):
                program = cl.Program(self.context, [self.handle], [source])
            else:
                program = cl.Program(self.context, source)
            return program.build([*_OPTIONS, *exact], cache_dir=False)
        except cl.RuntimeError as error:
            raise CodegenError(f"OpenCL refuses the generated text: {error}") from error

    def _rounds_exactly(self) -> bool:
        flags = self.handle.single_fp_config
        return bool(flags & self.cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT)


@cache
def _device(index: int) -> _Device:
    import pyopencl as cl  # noqa: PLC0415 - where a kernel is built for it

    handle = devices.handles()[index]
    context = cl.Context([handle])
    return _Device(cl, handle, context, cl.CommandQueue(context))


class OpenCLKernel(Kernel):
    """A kernel that runs on an OpenCL device; see `Kernel`."""

    def __init__(self, artifact: Artifact, target: Target) -> None:
        super().__init__(artifact, target)
        self._device = _device(target.index)
        self._host = json.loads(artifact.wrapper_code)
        with self._device.lock:
            self._program = self._device.build(artifact.object_code)
            self._kernels = [
                self._device.cl.Kernel(self._program, launch["name"])
                for launch in self._host["launches"]
            ]
            self._faults = np.zeros(1, np.int32)
            self._fault_buffer = self._buffer(self._faults)
        self._checks = any(["faults"] in x["args"] for x in self._host["launches"])
        self._temporaries: dict[str, Any] = {}
        self._scalars_set: dict[tuple[int, int], Any] = {}

    @property
    def asm(self) -> str:
        """Not for OpenCL, whose binaries are the driver's own.

        Raises:
            TargetError: always.
        """
        raise TargetError(
            f"{self.target.name} does not show machine code; see .source, its OpenCL C"
        )

    @cached_property
    def resources(self) -> Mapping[str, int]:
        """Launches, bytes of program, and the most memory of a group and a thread."""
        info = self._device.cl.kernel_work_group_info
        handle = self._device.handle
        local, private = (
            max(k.get_work_group_info(what, handle) for k in self._kernels)
            for what in (info.LOCAL_MEM_SIZE, info.PRIVATE_MEM_SIZE)
        )
        return {
            "launches": len(self._kernels),
            "object_bytes": len(self.artifact.object_code),
            "shared_bytes": local,
            "private_bytes": private,
        }

    def _slow(self, *args: Any) -> None:
        """Check the arguments, run all launches, and wait for the last."""
        call = calling.prepare(self.signature, args)
        with self._device.lock:
            code = self._run(call)
        for target, source in call.back:
            np.copyto(target, source)
        if code:
            self._fault(code)

    def _run(self, call: calling.Call) -> int:
        buffers = [self._buffer(array) for array in call.arrays]
        names = self._scalars(call.scalars)
        host_program.run(
            self._host["program"], names, lambda k, n: self._launch(k, n, buffers)
        )
        for spec, array, buffer in zip(
            self.signature.buffers, call.arrays, buffers, strict=True
        ):
            if spec.written and array.nbytes:
                self._bring_back(buffer, array)
        if self._checks:
            self._bring_back(self._fault_buffer, self._faults)
        self._device.queue.finish()
        return self._reported()

    def _reported(self) -> int:
        """The fault that the last call reported, which is then forgotten."""
        code = int(self._faults[0])
        if code:
            self._faults[0] = 0
            with self._device.lock:
                self._fault_buffer = self._buffer(self._faults)
        return code

    def _scalars(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The scalars under the names that the lowered function has for them."""
        names = zip(self._host["scalars"], self.signature.scalars, strict=True)
        return {name: given[spec.name] for name, spec in names}

    def _buffer(self, array: np.ndarray[Any, Any]) -> Any:
        """Device memory over an array's; None of none."""
        flags = self._device.cl.mem_flags
        if not array.nbytes:
            return None
        return self._device.cl.Buffer(
            self._device.context,
            flags.READ_WRITE | flags.USE_HOST_PTR,
            hostbuf=_raw(array),
        )

    def _bring_back(self, buffer: Any, array: np.ndarray[Any, Any]) -> None:
        """Make what the device wrote seen in the array: mapping it does."""
        if self._device.in_place:
            return
        cl, queue = self._device.cl, self._device.queue
        raw = _raw(array)
        mapped, _ = cl.enqueue_map_buffer(
            queue, buffer, cl.map_flags.READ, 0, raw.shape, raw.dtype, is_blocking=True
        )
        if mapped.ctypes.data != raw.ctypes.data:
            np.copyto(raw, mapped)
        mapped.base.release(queue)

    def _launch(self, number: int, names: dict[str, Any], buffers: list[Any]) -> None:
        """One launch, skipped where it has no blocks."""
        launch, kernel = self._host["launches"][number], self._kernels[number]
        grid = [host_program.number(extent, names) for extent in launch["grid"]]
        if min(grid) <= 0:
            return
        for position, (kind, *rest) in enumerate(launch["args"]):
            if kind == "param":
                kernel.set_arg(position, buffers[rest[0]])
            elif kind == "scalar":
                self._set_scalar(number, position, rest[1], names[rest[0]])
            elif kind == "faults":
                kernel.set_arg(position, self._fault_buffer)
            else:
                size = host_program.number(rest[1], names)
                kernel.set_arg(position, self._temporary(rest[0], size))
        block = tuple(launch["block"])
        whole = tuple(n * size for n, size in zip(grid, block, strict=True))
        self._device.cl.enqueue_nd_range_kernel(
            self._device.queue, kernel, whole, block
        )

    def _set_scalar(self, number: int, position: int, dtype: str, value: Any) -> None:
        """Set a number, unless the kernel has it from the call before."""
        made = _SCALARS[dtype](value)
        place, bits = (number, position), made.tobytes()
        if self._scalars_set.get(place) != bits:
            self._kernels[number].set_arg(position, made)
            self._scalars_set[place] = bits

    def _temporary(self, name: str, size: int) -> Any:
        """A temporary of at least so many bytes, kept for the calls to come."""
        held = self._temporaries.get(name)
        if held is None or held.size < size:
            flags = self._device.cl.mem_flags.READ_WRITE
            held = self._device.cl.Buffer(self._device.context, flags, max(size, 1))
            self._temporaries[name] = held
        return held


def _raw(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bytes of a contiguous array, which PyOpenCL wants writable in any case."""
    kind = ctypes.c_uint8 * array.nbytes
    return np.ctypeslib.as_array(kind.from_address(array.ctypes.data))


def _scalar(name: str) -> Callable[[Any], Any]:
    """From a Python number to the bytes of a kernel's argument."""
    dtype = DType(name)
    kind = np.dtype(np.uint8) if dtype.is_bool else dtype.numpy

    def convert(value: Any) -> Any:
        with np.errstate(over="ignore"):
            made = np.asarray(value).astype(kind)[()]
        return made if kind.itemsize > 1 or kind.kind in "iu" else np.uint8(made)

    return convert


_SCALARS: Final = {name: _scalar(name) for name in NAMES}

load = OpenCLKernel
