"""Backend for this machine's CPU: LLVM code and the emitted call wrapper."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Final

from tensorlang import lazy
from tensorlang.once import cached_property
from tensorlang.runtime import calling
from tensorlang.runtime.cpu import llvm, pool, wrapper
from tensorlang.runtime.kernel import Artifact, Kernel, never
from tensorlang.runtime.signature import Signature
from tensorlang.targets import Target

with lazy.modules(__name__):  # a warm process needs neither
    from tensorlang.codegen import lower as lowering
    from tensorlang.codegen.llvm import render as printing

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Function

_INSTRUCTION: Final = re.compile(r"^\s+([a-z][\w.]*)", re.MULTILINE)


def versions(target: Target) -> str:
    """What object code depends on besides its source."""
    del target
    return llvm.versions()


def lower(function: Function, target: Target) -> Function:
    """The function as each thread of the team runs it."""
    return lowering.lower(function, target)


def render(function: Function, target: Target, knobs: Mapping[str, object]) -> str:
    """The LLVM IR of a lowered function."""
    return printing.render(function, target, knobs)


def compiled(
    source: str, lowered: Function, signature: Signature, target: Target
) -> tuple[bytes, bytes]:
    """Object code of a source, and of its call wrapper."""
    del lowered
    code = llvm.compile_module(source)
    independent = wrapper.is_barrier_free(source)
    return code, wrapper.wrapper_code(
        signature, target.threads, independent=independent
    )


class LLVMKernel(Kernel):
    """A kernel that runs on this machine's CPU."""

    out_of_memory: ClassVar[int] = wrapper.OUT_OF_MEMORY

    def __init__(self, artifact: Artifact, target: Target) -> None:
        super().__init__(artifact, target)
        signature = artifact.signature
        library = llvm.link(
            [artifact.object_code, artifact.wrapper_code],
            wrapper.exports(signature),
            pool.symbols() | wrapper.imports(signature),
        )
        run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
        self._library = library
        self._entry: Callable[[int], int] = run(library[f"{self.name}.run"])
        if wrapper.has_fast_path(signature):
            address = library[f"{self.name}.call"]
            self.launch = wrapper.native_function(
                signature, address, self._slow, self._fault, library
            )
        if wrapper.takes_several(signature):
            address = library[f"{self.name}.each"]
            self.each = wrapper.native_function(
                signature, address, never, self._fault, library
            )

    @cached_property
    def asm(self) -> str:
        """Assembly of the kernel, without the call wrapper."""
        return llvm.assembly(self.artifact.source)

    @cached_property
    def resources(self) -> Mapping[str, int]:
        """Bytes of object code, instruction count, and bytes of stack."""
        stack = re.findall(r"sub[q]?\s+\$(\d+), %rsp", self.asm)
        return {
            "object_bytes": len(self.artifact.object_code),
            "instructions": len(_INSTRUCTION.findall(self.asm)),
            "stack_bytes": max(map(int, stack), default=0),
        }

    def _slow(self, *args: object) -> None:
        """Slow path: handles what the emitted wrapper does not."""
        code = calling.run(self.signature, self._entry, args)
        if code:
            self._fault(code)


load = LLVMKernel
