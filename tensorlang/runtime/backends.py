"""Backends: one module per kind of target that builds and runs its kernels.

Each has the same five functions: `lower`, `render` and `compiled` produce an
`Artifact`, `load` makes it a `Kernel`, and `versions` names the tools involved.
"""

from __future__ import annotations

from types import ModuleType
from typing import Final

from tensorlang import lazy
from tensorlang.targets import Target

with lazy.modules(__name__):  # each loads its device's driver
    from tensorlang.runtime.cpu import backend as llvm_kernel
    from tensorlang.runtime.cuda import backend as cuda
    from tensorlang.runtime.opencl import backend as opencl

_BACKENDS: Final[dict[str, ModuleType]] = {
    "llvm": llvm_kernel,
    "opencl": opencl,
    "cuda": cuda,
}


def of(target: Target) -> ModuleType:
    """The backend module of a target, which is imported on first use."""
    return _BACKENDS[target.kind]
