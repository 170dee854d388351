"""Search spaces for GPU threads: how each family's loop nests are bound."""

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
