"""Backend for NVIDIA GPUs: CUDA C++ compiled to a cubin, which needs no GPU.

Compiler statistics (registers, spills, shared memory) are stored with the machine code,
so that kernels loaded from the cache have them as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorlang import lazy
from tensorlang.runtime.cpu import launcher, llvm
from tensorlang.runtime.cuda import cubins, tensor_call, toolchain
from tensorlang.runtime.cuda.kernel import CudaKernel
from tensorlang.runtime.signature import Signature
from tensorlang.runtime.simt import lower, render
from tensorlang.targets import Target

with lazy.modules(__name__):  # a warm process needs neither
    from tensorlang.codegen.simt import host, multi_tensor

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Function

__all__ = ["CudaKernel", "compiled", "load", "lower", "render", "versions"]


def versions(target: Target) -> str:
    """The compilers and the architecture, including the launchers' compiler."""
    return f"{toolchain.versions()} for {target.arch}; {llvm.versions()}"


def compiled(
    source: str, lowered: Function, signature: Signature, target: Target
) -> tuple[bytes, bytes]:
    """The cubin of a source, and the packed launcher and host program.

    Raises:
        CodegenError: a compiler rejects the source; the message includes its output.
        TargetError: a compiler is missing.
    """
    cubin, resources = cubins.cubin_of(source, target.arch)
    program = host.host_program(lowered)
    asked = [launch.get("dynamic_shared", 0) for launch in program["launches"]]
    resources["shared_bytes"] = max(resources["shared_bytes"], *asked, 0)
    program["resources"] = resources
    of = multi_tensor.multi_tensor_launch(lowered)
    program["multi_tensor"] = of.data() if of else None
    served = tensor_call.serves(signature, program)
    call = tensor_call.text(signature, program) if served else ""
    return cubin, launcher.packed(signature.name, signature, program, call)


load = CudaKernel
