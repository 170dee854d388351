"""Backends: one module per kind of target that builds and runs its kernels.

Each has the same five functions: `lower`, `render` and `compiled` produce an
`Artifact`, `load` makes it a `Kernel`, and `versions` names the tools involved.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Final

from tensorlang.targets import Target

_MODULES: Final = {"llvm": "host", "opencl": "opencl", "cuda": "cuda"}


def of(target: Target) -> ModuleType:
    """The backend module of a target; importing it loads the device's driver."""
    return import_module(f"tensorlang.runtime.{_MODULES[target.kind]}")
