"""Kernels with bounds checks on every access; see `tensorlang.codegen.checked`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tensorlang.codegen.checked import COLUMNS, Access
from tensorlang.errors import ArgumentError, KernelError
from tensorlang.runtime.kernel import Kernel
from tensorlang.runtime.signature import Signature


class CheckedKernel(Kernel):
    """A kernel that skips out-of-bounds accesses and reports them.

    Raises (when called):
        KernelError: an index is out of range; names the access, the index, the size,
            and the line of the definition.
    """

    def __init__(
        self, kernel: Kernel, signature: Signature, accesses: Sequence[Access]
    ) -> None:
        super().__init__(replace(kernel.artifact, signature=signature), kernel.target)
        self._kernel = kernel
        self._accesses = accesses

    @property
    def asm(self) -> str:
        """Disassembly of the machine code."""
        return self._kernel.asm

    @property
    def resources(self) -> Mapping[str, int]:
        """Resources that the kernel uses."""
        return self._kernel.resources

    def _slow(self, *args: object) -> None:
        if len(args) != self._arity:
            raise ArgumentError(
                f"{self.name} takes {self._arity} arguments, got {len(args)}"
            )
        buffers = len(self.signature.buffers)
        report = np.zeros((max(len(self._accesses), 1), COLUMNS), np.int64)
        self._kernel.launch(*args[:buffers], report, *args[buffers:])
        for access, (outside, index, size) in zip(
            self._accesses, report.tolist(), strict=False
        ):
            if outside:
                raise KernelError(f"{self.name}: {access.message(index, size)}")
