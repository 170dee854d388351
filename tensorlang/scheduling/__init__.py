"""Floor 2, scheduling: how a function runs, changed step by step, its meaning kept.

`Schedule` applies the primitives and keeps their trace; `Knobs` are the choices of a
schedule; `@schedule` registers one. Every primitive is a pure function in `PRIMITIVES`,
every rule that guards one a named check in `LEGALITY`.
"""

from tensorlang.scheduling import (  # noqa: F401 - importing them fills PRIMITIVES
    annotate,
    cache,
    cache_write,
    compute_at,
    inline,
    layout,
    loops,
    memory,
    pad,
    partition,
    reduction,
    reindex,
    reverse_compute_at,
    rfactor,
    tensorize,
)
from tensorlang.scheduling.knobs import Knobs
from tensorlang.scheduling.legality import LEGALITY
from tensorlang.scheduling.primitives import PRIMITIVES
from tensorlang.scheduling.registry import Entry, schedule, schedules_for
from tensorlang.scheduling.schedule import Schedule
from tensorlang.scheduling.trace import Step, Trace

__all__ = [
    "LEGALITY",
    "PRIMITIVES",
    "Entry",
    "Knobs",
    "Schedule",
    "Step",
    "Trace",
    "schedule",
    "schedules_for",
]
