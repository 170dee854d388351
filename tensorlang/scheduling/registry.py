"""The registry of schedules, filled by the `@schedule` decorator.

    @schedule("matmul", algorithm="packed", model="cpu")
    def packed(s: Schedule, knobs: Knobs) -> None: ...

A schedule with its knobs *is* a search space: the tuner runs it with trials, a record
replays it, and otherwise it takes its defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from tensorlang.errors import ScheduleError
from tensorlang.frozen import frozen
from tensorlang.ir.nodes import Function
from tensorlang.scheduling.knobs import Knobs
from tensorlang.scheduling.schedule import Schedule
from tensorlang.targets import Target

Body: TypeAlias = Callable[[Schedule, Knobs], None]
MODELS: Final = ("cpu", "simt")


@frozen
class Entry:
    """A schedule function, with the family, algorithm and execution model it is for."""

    family: str
    algorithm: str
    model: str
    body: Body

    def __str__(self) -> str:
        return f"{self.family}/{self.algorithm} for {self.model}"

    def run(
        self, func: Function, target: Target | None = None, knobs: Knobs | None = None
    ) -> Schedule:
        """Schedule a function: with the given knobs, or with the defaults.

        Raises:
            ScheduleError: a step is not legal for these knob values.
            ArgumentError: a knob value is outside of its domain.
        """
        s = Schedule(func, target)
        asked = knobs if knobs is not None else Knobs()
        self.body(s, asked)
        s.number_loops()
        s.knobs = dict(asked.values)
        return s


SCHEDULES: Final[dict[tuple[str, str, str], Entry]] = {}


def schedule(
    family: str, *, algorithm: str = "direct", model: str = "cpu"
) -> Callable[[Body], Body]:
    """Register a schedule function for a family of operators.

    Args:
        family: The family, such as `"matmul"` or `"random"`.
        algorithm: The algorithm whose IR it schedules.
        model: The execution model: `"cpu"` or `"simt"`.

    Raises:
        ScheduleError: the model is unknown, or such a schedule exists.
    """
    if model not in MODELS:
        raise ScheduleError(
            f"{model!r} is not one of the execution models {', '.join(MODELS)}"
        )

    def register(body: Body) -> Body:
        entry = Entry(family, algorithm, model, body)
        known = SCHEDULES.setdefault((family, algorithm, model), entry)
        if known is not entry:
            raise ScheduleError(
                f"{entry} is scheduled by {_home(known.body)} already; "
                f"{_home(body)} needs another family or algorithm"
            )
        return body

    return register


def _home(body: Body) -> str:
    return f"{body.__module__}.{body.__qualname__}"


def schedules_for(
    family: str, algorithm: str | None = None, model: str | None = None
) -> tuple[Entry, ...]:
    """The schedules of a family, in the order of their registration.

    Args:
        family: The family of operators.
        algorithm: Only of this algorithm.
        model: Only for this execution model.
    """
    return tuple(
        entry
        for entry in SCHEDULES.values()
        if entry.family == family
        and algorithm in (None, entry.algorithm)
        and model in (None, entry.model)
    )
