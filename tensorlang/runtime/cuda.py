"""Kernels for NVIDIA GPUs: CUDA C++ compiled to a cubin, which needs no GPU.

What compiling tells (registers, spills, shared memory) goes with the machine code, so
that a kernel which was found in the cache knows it, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorlang.runtime import launcher, llvm, toolchain
from tensorlang.runtime.cuda_kernel import CudaKernel
from tensorlang.runtime.signature import Signature
from tensorlang.runtime.simt import lower, render
from tensorlang.targets import Target

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Function

__all__ = ["CudaKernel", "compiled", "load", "lower", "render", "versions"]


def versions(target: Target) -> str:
    """The compilers and the architecture, and what compiles launchers."""
    return f"{toolchain.versions()} for {target.arch}; {llvm.versions()}"


def compiled(
    source: str, lowered: Function, signature: Signature, target: Target
) -> tuple[bytes, bytes]:
    """The cubin of a source, and packed what the host runs and what the GPU is asked.

    Raises:
        CodegenError: a compiler refuses the text; the message has its own words.
        TargetError: a compiler is missing.
    """
    from tensorlang.codegen.simt.host import host_program  # noqa: PLC0415 - not warm
    from tensorlang.codegen.simt.many import many  # noqa: PLC0415 - not warm

    cubin, resources = toolchain.whole_cubin_of(
        toolchain.ptx_of(source, target.arch), target.arch
    )
    program = host_program(lowered)
    asked = [launch.get("dynamic_shared", 0) for launch in program["launches"]]
    resources["shared_bytes"] = max(resources["shared_bytes"], *asked, 0)
    program["resources"] = resources
    of = many(lowered)
    program["many"] = of.data() if of else None
    return cubin, launcher.packed(signature.name, signature, program)


load = CudaKernel
