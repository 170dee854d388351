# ruff: noqa: N802
"""A GPU that is none, and runs what NVRTC makes of each kernel: PTX.

It is `fake_cuda`'s in all but its launches, which `ptx_machine` executes instruction
by instruction, from the sources that the templates write.
"""

from __future__ import annotations

import ctypes

import numpy as np
from tensorlang_test_programs import fake_cuda, ptx_machine

from tensorlang.runtime import toolchain

ptx_of, versions = toolchain.ptx_of, toolchain.versions


def install(monkeypatch) -> Driver:
    """Let this process see a GPU that runs PTX, until the test ends."""
    driver = fake_cuda.install(monkeypatch, Driver)
    monkeypatch.setattr(toolchain, "ptx_of", ptx_of)
    monkeypatch.setattr(toolchain, "versions", lambda: f"{versions()} and a machine")
    return driver


class Driver(fake_cuda.Driver):
    """`fake_cuda.Driver` with a machine for PTX.

    Attributes:
        programs: The PTX of each function, by its launch's identity.
        issued: Instructions of all launches.
    """

    def __init__(self):
        super().__init__()
        self.programs, self.modules, self.issued = {}, {}, 0

    def _cuModuleLoadData(self, place, cubin):
        super()._cuModuleLoadData(place, cubin)
        self.modules[place._obj.value] = ptx_machine.load(cubin.decode())

    def _cuModuleGetFunction(self, place, module, name):
        super()._cuModuleGetFunction(place, module, name)
        launch = self.kernels[place._obj.value]
        program = self.modules[module.value][name.decode()]
        self.programs[id(launch)] = (launch, program)

    def _execute(self, launch, sizes, stream, values):
        self.in_context()
        self.launched.append((launch.name, tuple(sizes[:3]), tuple(sizes[3:6]), stream))
        memory = ptx_machine.GlobalMemory()
        for address, (_, size) in list(self.memory.items()):
            raw = (ctypes.c_ubyte * size).from_address(address)
            memory.add(address, np.frombuffer(raw, np.uint8))
        _, program = self.programs[id(launch)]
        params = [value.tobytes() for value in values]
        grid, block, shared = tuple(sizes[:3]), tuple(sizes[3:6]), sizes[6]
        self.issued += ptx_machine.launch(
            program, memory, grid, block, params, shared=shared
        )
        return 0
