"""Backend for OpenCL devices, through PyOpenCL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorlang import lazy
from tensorlang.runtime.cpu import launcher, llvm
from tensorlang.runtime.opencl.device import of_target
from tensorlang.runtime.opencl.kernel import OpenCLKernel
from tensorlang.runtime.signature import Signature
from tensorlang.runtime.simt import lower, render
from tensorlang.targets import Target

with lazy.modules(__name__):  # not in a warm process
    from tensorlang.codegen.simt import host

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Function

__all__ = ["OpenCLKernel", "compiled", "load", "lower", "render", "versions"]


def versions(target: Target) -> str:
    """The device and driver of compiled programs, and the launchers' compiler."""
    return f"opencl {target.device} {target.driver}; {llvm.versions()}"


def compiled(
    source: str, lowered: Function, signature: Signature, target: Target
) -> tuple[bytes, bytes]:
    """The device's binary of a source, and the packed host program.

    Raises:
        CodegenError: the driver rejects the source; the message includes its own.
    """
    device = of_target(target.index)
    with device.lock:
        program = device.build(source)
        binary = program.get_info(device.cl.program_info.BINARIES)[0]
    packed = launcher.packed(signature.name, signature, host.host_program(lowered))
    return bytes(binary), packed


load = OpenCLKernel
