"""Search spaces for GPU threads: how each family's loop nests are bound."""

from tensorlang.schedules.simt import (
    bound,
    generic,
    pool_gradients,
    random,
    rows,
)

__all__ = [
    "bound",
    "generic",
    "pool_gradients",
    "random",
    "rows",
]
