"""Tensor kernels that you can read, tune and trust.

`tensorlang.ops` is the operator library; with `tensorlang.ir`, `tensorlang.scheduling`
and `build` you write your own kernels; `tune` finds the best schedule for this machine.
Submodules are imported on first use, so importing the package is cheap.
"""

from __future__ import annotations

from tensorlang import lazy
from tensorlang.version import __version__

with lazy.names(__name__):
    from tensorlang import errors as errors
    from tensorlang import graph as graph
    from tensorlang import ir, ops, scheduling
    from tensorlang import layers as layers
    from tensorlang import runtime as runtime
    from tensorlang import targets as targets
    from tensorlang import tuner as tuner
    from tensorlang.errors import TensorlangError
    from tensorlang.runtime import Kernel, build
    from tensorlang.targets import Target
    from tensorlang.tuner import tune

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
