"""A machine that runs PTX on the CPU: what NVRTC makes of a kernel is executed.

    kernels = ptx_machine.load(ptx)
    memory = ptx_machine.GlobalMemory()
    memory.add(address, raw)                 # bytes that the kernel may touch
    ptx_machine.launch(kernels["f"], memory, grid, block, params)

All threads of some blocks go in step, each with a program counter of its own: of those
that are ready, the ones at the smallest counter run. Every register is a NumPy array
with one element a thread. What the PTX ISA leaves undefined is a `Fault`, which tells
the kernel, the line and the thread: accesses outside of memory or not aligned, barriers
and warps that not all threads reach, shared memory that is read before a barrier or an
asynchronous copy's wait makes it visible.

The meaning of each instruction is written from NVIDIA's "Parallel Thread Execution ISA"
alone, and shares no table with the package. An instruction, a type or a modifier that
is not known is a `Fault`, too. Not covered: calls of functions, `brx.idx`, textures,
clusters, and of Hopper what `examples/hopper_ring.py` has no use for.
"""

from .faults import Fault
from .machine import launch
from .memory import GlobalMemory
from .syntax import load

__all__ = ["Fault", "GlobalMemory", "launch", "load"]
