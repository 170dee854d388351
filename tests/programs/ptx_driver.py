# ruff: noqa: N802
"""A GPU that is none, and runs what NVRTC makes of each kernel: PTX.

It is `fake_cuda`'s in all but its launches, which `ptx_machine` executes instruction
by instruction, from the sources that the templates write.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
from tensorlang_test_programs import fake_cuda, ptx_machine
from tensorlang_test_programs.ptx_machine.tensor_maps import TensorMap

from tensorlang.runtime.cuda import multi_tensor as cuda_multi_tensor
from tensorlang.runtime.cuda import toolchain

ENCODE = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    *(ctypes.c_int32, ctypes.c_int32),
    ctypes.c_uint64,
    *(ctypes.POINTER(ctypes.c_uint64),) * 2,
    *(ctypes.POINTER(ctypes.c_uint32),) * 2,
    *(ctypes.c_int32,) * 4,
)
ptx_of, versions = toolchain.ptx_of, toolchain.versions


def install(monkeypatch, library="pycuda") -> Driver:
    """Let this process see a GPU that runs PTX, until the test ends."""
    driver = fake_cuda.install(monkeypatch, Driver, library)
    monkeypatch.setattr(toolchain, "ptx_of", ptx_of)
    monkeypatch.setattr(toolchain, "versions", lambda: f"{versions()} and a machine")
    return driver


def _encode(place, kind, rank, start, *rest):
    """`cuTensorMapEncodeTiled`: the machine's own 128 bytes."""
    dims, pitches, box, _, _, swizzle, _, _ = rest
    if start % 16 or any(n % 16 for n in pitches[: rank - 1]) or 0 in dims[:rank]:
        return 1
    of = TensorMap(start, tuple(dims[:rank]), (), tuple(box[:rank]), swizzle, kind)
    made = replace(of, pitches=(of.size, *pitches[: rank - 1])).to_bytes()
    ctypes.memmove(place, made, len(made))
    return 0


class Driver(fake_cuda.Driver):
    """`fake_cuda.Driver` with a machine for PTX.

    Attributes:
        programs: The PTX of each function, by its launch's identity.
        issued: Instructions of all launches.
    """

    def __init__(self):
        super().__init__()
        self.programs, self.modules, self.issued = {}, {}, 0
        self.cuTensorMapEncodeTiled = ENCODE(_encode)

    def _cuModuleLoadData(self, place, cubin):
        super()._cuModuleLoadData(place, cubin)
        text = cubin.partition(fake_cuda.LOWERED)[0].decode()
        self.modules[place._obj.value] = ptx_machine.load(text)

    def _cuModuleGetFunction(self, place, module, name):
        super()._cuModuleGetFunction(place, module, name)
        launch = self.kernels[place._obj.value]
        program = self.modules[module.value][name.decode()]
        self.programs[id(launch)] = (launch, program)

    def _each_set(self, of, sizes, stream, params):
        """A launch for many sets, as it is: its table is an argument."""
        table = cuda_multi_tensor._table_of(of.most, len(of.buffers))
        given = [ctypes.string_at(params[0], ctypes.sizeof(table))]
        given += [
            ctypes.string_at(params[n], max(var.dtype.bits // 8, 1))
            for n, var in enumerate(of.scalars, 1)
        ]
        return self._run(of, sizes, stream, given)

    def _execute(self, launch, sizes, stream, values):
        return self._run(launch, sizes, stream, [value.tobytes() for value in values])

    def _run(self, launch, sizes, stream, params):
        self.in_context()
        self.launched.append((launch.name, tuple(sizes[:3]), tuple(sizes[3:6]), stream))
        memory = ptx_machine.GlobalMemory()
        for address, (_, size) in list(self.memory.items()):
            raw = (ctypes.c_ubyte * size).from_address(address)
            memory.add(address, np.frombuffer(raw, np.uint8))
        _, program = self.programs[id(launch)]
        grid, block, shared = tuple(sizes[:3]), tuple(sizes[3:6]), sizes[6]
        self.issued += ptx_machine.launch(
            program, memory, grid, block, params, shared=shared
        )
        return 0
