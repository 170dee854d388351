"""Search spaces: the schedules of each family of operators.

A schedule is a function with knobs. Importing this package registers them all in the
table read by `tensorlang.scheduling.schedules_for`.
"""

from tensorlang.schedules import (
    broadcast_gradients,
    convolutions,
    embedding,
    generic,
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
    "convolutions",
    "embedding",
    "generic",
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
