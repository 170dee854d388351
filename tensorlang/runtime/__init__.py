"""Build and run kernels: `build`, `cached_kernel`, `Kernel`.

Importing this package loads none of its modules, and no compiler.
"""

from tensorlang import lazy

with lazy.names(__name__):
    from tensorlang.runtime.arrays import buffers as buffers
    from tensorlang.runtime.arrays import device_arrays as device_arrays
    from tensorlang.runtime.arrays import foreign_arrays as foreign_arrays
    from tensorlang.runtime.arrays import host_arrays as host_arrays
    from tensorlang.runtime.arrays import overlaps as overlaps
    from tensorlang.runtime.building import build, cached_kernel
    from tensorlang.runtime.kernel import Kernel

__all__ = ["Kernel", "build", "cached_kernel"]
