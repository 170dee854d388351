"""Tensor kernels that you can read, tune and trust.

`tensorlang.ops` is the operator library; with `tensorlang.ir`, `tensorlang.scheduling`
and `build` you write your own kernels; `tune` finds the best schedule for this machine.
Submodules are imported on first use, so importing the package is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tensorlang import ir, ops, scheduling
    from tensorlang.errors import TensorlangError
    from tensorlang.runtime import Kernel, build
    from tensorlang.targets import Target
    from tensorlang.tuner import tune

__version__ = "0.1.0"
__all__ = [
    "Kernel",
    "Target",
    "TensorlangError",
    "__version__",
    "build",
    "ir",
    "ops",
    "scheduling",
    "tune",
]

_HOME: Final = {
    "Kernel": "tensorlang.runtime",
    "Target": "tensorlang.targets",
    "TensorlangError": "tensorlang.errors",
    "build": "tensorlang.runtime",
    "tune": "tensorlang.tuner",
}
_MODULES: Final = (
    "ir",
    "ops",
    "scheduling",
    "errors",
    "targets",
    "runtime",
    "tuner",
    "graph",
    "layers",
)


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _MODULES:
        return import_module(f"tensorlang.{name}")
    raise AttributeError(f"module 'tensorlang' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME, *_MODULES])
