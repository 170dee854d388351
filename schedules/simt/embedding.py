"""Embedding rows on threads: gradients are sorted by row first.

The device definitions bind their threads already; gathers are scheduled generically.
"""

from __future__ import annotations

from tensorlang.scheduling import Knobs, Schedule, schedule


def keep_bindings(s: Schedule, knobs: Knobs) -> None:
    """Keep the positions sorted by row as they were bound by the definition."""
    del s, knobs


for _name in ("sorted", "sorted_in_memory"):
    schedule("embedding", algorithm=_name, model="simt")(keep_bindings)
