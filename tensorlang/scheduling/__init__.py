"""Layer 2, scheduling: transform how a function runs, step by step, keeping semantics.

`Schedule` applies the primitives and records their trace; `Knobs` are the choices of a
schedule; `@schedule` registers one. Every primitive is a pure function in `PRIMITIVES`,
every rule that guards one a named check in `LEGALITY`.
"""

from typing import TYPE_CHECKING

from tensorlang.scheduling.analysis import legality
from tensorlang.scheduling.knobs import Knobs
from tensorlang.scheduling.primitives import PRIMITIVES
from tensorlang.scheduling.registry import Entry, schedule, schedules_for
from tensorlang.scheduling.schedule import Schedule
from tensorlang.scheduling.trace import Step, Trace

if TYPE_CHECKING:
    from tensorlang.scheduling.analysis.legality import LEGALITY

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


def __getattr__(name: str) -> object:
    """Import all primitives before exposing the table of rules, so it is complete."""
    if name != "LEGALITY":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    PRIMITIVES.load()
    return legality.LEGALITY
