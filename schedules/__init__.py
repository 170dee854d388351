"""Search spaces: the schedules of each family of operators.

A schedule is a function with knobs. Importing this package registers them all in the
table read by `tensorlang.scheduling.schedules_for`.
"""

from tensorlang.schedules import (
    broadcast_gradients,
    conv,
    conv_last,
    conv_phases,
    depthwise,
    embedding,
    generic,
    outer_products,
    pool,
    pool_gradients,
    random,
    rows,
    scans,
    simt,
    slices,
    sorting,
    transpose,
    winograd,
)

__all__ = [
    "broadcast_gradients",
    "conv",
    "conv_last",
    "conv_phases",
    "depthwise",
    "embedding",
    "generic",
    "outer_products",
    "pool",
    "pool_gradients",
    "random",
    "rows",
    "scans",
    "simt",
    "slices",
    "sorting",
    "transpose",
    "winograd",
]
