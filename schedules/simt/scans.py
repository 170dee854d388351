"""Running folds on threads, which their definitions for devices bind already.

Which thread has what fixes the order of a sum, and so its bits: that is no schedule's.
"""

from __future__ import annotations

from tensorlang.scheduling import Knobs, Schedule, schedule


def bound(s: Schedule, knobs: Knobs) -> None:
    """Parts of rows, a block each: as they are defined."""
    del s, knobs


for _name in ("chunks", "narrow_chunks"):
    for _exchange in ("", "_in_memory"):
        schedule("scan", algorithm=_name + _exchange, model="simt")(bound)
