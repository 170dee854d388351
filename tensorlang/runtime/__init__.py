"""Build and run kernels: `build`, `cached_kernel`, `Kernel`.

Importing this package loads none of its modules, and no compiler.
"""

from typing import TYPE_CHECKING

from tensorlang import lazy

if TYPE_CHECKING:
    from tensorlang.runtime import arrays as arrays
    from tensorlang.runtime import buffers as buffers
    from tensorlang.runtime import device_arrays as device_arrays
    from tensorlang.runtime import foreign_arrays as foreign_arrays
    from tensorlang.runtime import overlaps as overlaps
    from tensorlang.runtime.building import build, cached_kernel
    from tensorlang.runtime.kernel import Kernel
else:
    __getattr__, __dir__ = lazy.namespace(
        __name__,
        {
            "arrays": (),
            "buffers": (),
            "building": ("build", "cached_kernel"),
            "device_arrays": (),
            "foreign_arrays": (),
            "kernel": ("Kernel",),
            "overlaps": (),
        },
    )

__all__ = ["Kernel", "build", "cached_kernel"]
