"""What builds and runs kernels of each kind of target: one module a kind.

Each has the same five functions: `lower`, `render` and `compiled` on the way to an
`Artifact`, `load` from there to a `Kernel`, and `versions` of what had a hand in it.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Final

from tensorlang.targets import Target

_MODULES: Final = {"llvm": "host", "opencl": "opencl", "cuda": "cuda"}


def of(target: Target) -> ModuleType:
    """The module for a target; what drives a device is imported with it."""
    return import_module(f"tensorlang.runtime.{_MODULES[target.kind]}")
