"""Search spaces: an operator's algorithms with the knobs of their schedules.

A point is evaluated by running the schedule, with a trial or with given knob values,
which the tuner leaves to a worker. Rejections by the schedule or by machine limits are
known without building.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Final

from tensorlang.frozen import frozen
from tensorlang.ops.kernels import building
from tensorlang.scheduling import Knobs
from tensorlang.scheduling.knobs import Choice, Domain, Integer, V, Value
from tensorlang.tuner.storage.rows import parameter
from tensorlang.tuner.workers.protocol import LOST, Candidate, Outcome
from tensorlang.tuner.workers.scheduler import LocalScheduler, Scheduler

if TYPE_CHECKING:
    import optuna

    from tensorlang.ops.operator import Operator
    from tensorlang.targets import Target
    from tensorlang.workload import Workload

ALGORITHM: Final = "algorithm"


@frozen
class Point:
    """A scheduled configuration."""

    candidate: Candidate  # algorithm and knob values
    domains: Mapping[str, Domain]  # domain of each knob used
    ir: str = ""  # content hash of the scheduled IR; empty if it was rejected
    outcome: Outcome | None = None  # why it is not built, if so

    @property
    def lost(self) -> str:
        """Why it is not known what the schedule gives; else empty."""
        lost = self.outcome is not None and self.outcome.status == LOST
        return self.outcome.reason if self.outcome and lost else ""


@dataclass(slots=True)
class Space:
    """All configurations of an operator for a workload and target.

    Attributes:
        scheduler: What runs the schedules; by default this process.
        algorithms: Those that support the workload; the first is the default.
        spent: Seconds spent on scheduling, predictions of its cost models included.
        domains: The domains of the knobs seen so far, by algorithm.
        defaults: Their defaults, likewise.
    """

    op: Operator
    workload: Workload
    target: Target
    scheduler: Scheduler | None = None
    algorithms: tuple[str, ...] = field(init=False)
    spent: float = 0.0
    domains: dict[str, dict[str, Domain]] = field(default_factory=dict)
    defaults: dict[str, dict[str, Value]] = field(default_factory=dict)
    _modelled: set[str] = field(default_factory=set)
    _default: Point | None = None

    def __post_init__(self) -> None:
        first = building.preferred(self.op, self.workload, self.target)
        served = [
            name
            for name, algorithm in self.op.algorithms.items()
            if algorithm.suits(self.workload, self.target.features)
            and not building.is_of_other_machines(self.op, name, self.target)
        ]
        self.algorithms = tuple(sorted(served, key=lambda name: name != first))

    def default(self) -> Point:
        """The default configuration."""
        if self._default is None or self._default.lost:
            self._default = self.point(self.algorithms[0], Knobs())
        return self._default

    def given(self, candidate: Candidate) -> Point:
        """The point with these knob values; other knobs have their defaults."""
        return self.point(candidate.algorithm, Knobs(pinned=candidate.knobs))

    def suggested(self, trial: optuna.Trial) -> Point:
        """The point that a trial suggests."""
        algorithm = self.algorithms[0]
        if len(self.algorithms) > 1:
            choices = Choice(self.algorithms)
            name = f"{ALGORITHM}: {choices}"
            algorithm = trial.suggest_categorical(name, self.algorithms)
        return self.point(algorithm, Knobs(trial=_Named(trial, algorithm)))

    def every(self) -> Iterator[Point]:
        """Every point, each once."""
        for algorithm in self.algorithms:
            path = _Path()
            yield self.point(algorithm, Knobs(trial=path))
            while path.advance():
                yield self.point(algorithm, Knobs(trial=path))

    def point(self, algorithm: str, knobs: Knobs) -> Point:
        """Run the schedule and record the result."""
        start = time.perf_counter() - self.spent  # predictions may be made meanwhile
        made = self._run_by.schedule(algorithm, knobs)
        self.domains.setdefault(algorithm, {}).update(knobs.domains)
        self.defaults.setdefault(algorithm, {}).update(knobs.defaults)
        if made.modelled:
            self._modelled.add(algorithm)
        self.spent = time.perf_counter() - start
        candidate = Candidate(algorithm, dict(knobs.values))
        return Point(candidate, dict(knobs.domains), made.ir, made.outcome)

    @property
    def _run_by(self) -> Scheduler:
        if self.scheduler is None:
            self.scheduler = LocalScheduler(self.op, self.workload, self.target)
        return self.scheduler

    @property
    def size(self) -> int | None:
        """An upper bound of the number of configurations.

        None until every algorithm has been scheduled once.
        """
        if any(name not in self.domains for name in self.algorithms):
            return None
        every = (self.domains[name].values() for name in self.algorithms)
        return sum(prod(map(_count, domains)) for domains in every)

    @property
    def modelled(self) -> list[str]:
        """The algorithms whose schedules predict times."""
        return [name for name in self.algorithms if name in self._modelled]

    def predicted(
        self, algorithm: str, settings: Sequence[Mapping[str, Value]]
    ) -> list[float]:
        """The times that a schedule predicts for settings of its knobs, in any unit.

        Infinite where its model fails, or gives what is no time.
        """
        start = time.perf_counter()
        found = self._run_by.predict(algorithm, settings)
        self.spent += time.perf_counter() - start
        return found

    def parameters(self, point: Point) -> dict[str, tuple[Domain, Value]]:
        """Domain and value of each of Optuna's parameters at a point."""
        return self.named(point.candidate, point.domains)

    def named(
        self, candidate: Candidate, domains: Mapping[str, Domain]
    ) -> dict[str, tuple[Domain, Value]]:
        """Domain and value of each of Optuna's parameters of a candidate."""
        algorithm = candidate.algorithm
        found: dict[str, tuple[Domain, Value]] = {}
        if len(self.algorithms) > 1:
            choices = Choice(self.algorithms)
            found[f"{ALGORITHM}: {choices}"] = choices, algorithm
        for knob, domain in domains.items():
            value = candidate.knobs[knob]
            found[parameter(algorithm, knob, domain)] = domain, value
        return found


@frozen
class _Named:
    """An Optuna trial that uses the names from `parameter`."""

    trial: optuna.Trial
    algorithm: str

    def suggest_categorical(self, name: str, choices: Sequence[V]) -> V:
        """One of the choices."""
        known = parameter(self.algorithm, name, Choice(tuple(choices)))
        chosen: V = self.trial.suggest_categorical(known, choices)
        return chosen

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int, log: bool
    ) -> int:
        """An integer from `low` to `high`."""
        known = parameter(self.algorithm, name, Integer(low, high, step, log))
        chosen: int = self.trial.suggest_int(known, low, high, step=step, log=log)
        return chosen


class _Path:
    """A trial that chooses the next combination of values each time, as an odometer.

    Knobs that are asked for only with some values of others are met on the way.
    """

    def __init__(self) -> None:
        self._path: list[tuple[int, int]] = []  # index of the value, number of values
        self._asked = 0

    def suggest_categorical(self, name: str, choices: Sequence[V]) -> V:  # noqa: ARG002
        """One of the choices."""
        return choices[self._index(len(choices))]

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int, log: bool
    ) -> int:
        """An integer from `low` to `high`."""
        del name, log
        return low + step * self._index((high - low) // step + 1)

    def _index(self, count: int) -> int:
        if self._asked == len(self._path):
            self._path.append((0, count))
        self._asked += 1
        return self._path[self._asked - 1][0]

    def advance(self) -> bool:
        """Go on to the next combination; False after the last one."""
        del self._path[self._asked :]
        self._asked = 0
        while self._path:
            index, count = self._path.pop()
            if index + 1 < count:
                self._path.append((index + 1, count))
                return True
        return False


def _count(domain: Domain) -> int:
    if isinstance(domain, Choice):
        return len(domain.options)
    return (domain.high - domain.low) // domain.step + 1
