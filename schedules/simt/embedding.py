"""Rows of tables on threads: what is added up is sorted by its rows before.

Which thread adds up what is bound by the definition for devices; rows that are read go
the generic way.
"""

from __future__ import annotations

from tensorlang.scheduling import Knobs, Schedule, schedule


def bound(s: Schedule, knobs: Knobs) -> None:
    """Positions in the order of their rows: as they are defined."""
    del s, knobs


for _name in ("sorted", "sorted_in_memory"):
    schedule("embedding", algorithm=_name, model="simt")(bound)
