"""The search spaces: how each family of operators may be scheduled.

A schedule is a function with knobs. Importing this package enters them all in the table
that `tensorlang.scheduling.schedules_for` reads.
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
