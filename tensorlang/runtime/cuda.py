"""Kernels for NVIDIA GPUs: CUDA C++ compiled to a cubin, which needs no GPU.

What compiling tells (registers, spills, shared memory) goes with the machine code, so
that a kernel which was found in the cache knows it, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tensorlang.errors import TargetError
from tensorlang.runtime import launcher, llvm, toolchain
from tensorlang.runtime.kernel import Artifact, Kernel
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

    cubin, resources = toolchain.cubin_of(
        toolchain.ptx_of(source, target.arch), target.arch
    )
    program = host_program(lowered)
    asked = max(launch.get("dynamic_shared", 0) for launch in program["launches"])
    resources["shared_bytes"] = max(resources["shared_bytes"], asked)
    program["resources"] = resources
    return cubin, launcher.packed(signature.name, signature, program)


class CudaKernel(Kernel):
    """A kernel compiled for a GPU; see `Kernel`.

    Attributes:
        ptx: NVIDIA's portable assembly, from which ptxas made the machine code.
    """

    def __init__(self, artifact: Artifact, target: Target) -> None:
        super().__init__(artifact, target)
        self._host, self._code = launcher.unpacked(artifact.wrapper_code)

    @cached_property
    def ptx(self) -> str:
        """NVIDIA's portable assembly of the source."""
        return toolchain.ptx_of(self.source, self.target.arch)

    @cached_property
    def asm(self) -> str:
        """SASS: the instructions of the architecture."""
        return toolchain.sass_of(self.artifact.object_code)

    @property
    def resources(self) -> Mapping[str, int]:
        """Launches, registers, and bytes of spills, stack, shared memory and code."""
        return {
            "launches": len(self._host["launches"]),
            **self._host["resources"],
            "object_bytes": len(self.artifact.object_code),
        }

    def _slow(self, *args: Any) -> None:
        """Not without a GPU.

        Raises:
            TargetError: always.
        """
        raise TargetError(
            f"{self.name} is compiled for {self.target.arch}, and was called with "
            f"{len(args)} arguments, but no GPU is here; use 'llvm' or 'opencl'"
        )


load = CudaKernel
