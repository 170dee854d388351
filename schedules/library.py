"""The schedules of all families of operators.

A schedule is a function with knobs. Importing this module registers them all in the
table `SCHEDULES`, which `schedules_for` reads.
"""

from tensorlang.schedules import (
    attention,
    broadcast_gradients,
    embedding,
    generic,
    pool,
    pool_gradients,
    random,
    recurrent,
    rows,
    scans,
    simt,
    slices,
    sorting,
    transpose,
)
from tensorlang.schedules.contraction import nibbles
from tensorlang.schedules.convolution import choice, winograd
from tensorlang.scheduling.registry import SCHEDULES, schedules_for

__all__ = [
    "SCHEDULES",
    "attention",
    "broadcast_gradients",
    "choice",
    "embedding",
    "generic",
    "nibbles",
    "pool",
    "pool_gradients",
    "random",
    "recurrent",
    "rows",
    "scans",
    "schedules_for",
    "simt",
    "slices",
    "sorting",
    "transpose",
    "winograd",
]
