"""Build and run kernels: `build`, `cached_kernel`, `Kernel`.

Importing this package loads no compiler; the first build or call does.
"""

from tensorlang.runtime.building import build, cached_kernel
from tensorlang.runtime.kernel import Kernel

__all__ = ["Kernel", "build", "cached_kernel"]
