"""Search spaces for threads of a device: what each family's nests are bound to."""

from tensorlang.schedules.simt import (
    embedding,
    generic,
    pool_gradients,
    random,
    rows,
    scans,
    sorting,
    winograd,
)

__all__ = [
    "embedding",
    "generic",
    "pool_gradients",
    "random",
    "rows",
    "scans",
    "sorting",
    "winograd",
]
