"""Evaluation of schedule functions: the scheduled IR of some knobs, or a refusal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from math import inf
from typing import Any, Final, Protocol

from tensorlang.errors import TensorlangError
from tensorlang.frozen import frozen
from tensorlang.ir.digest import digest
from tensorlang.ir.nodes import Function
from tensorlang.ops.kernels import building
from tensorlang.ops.operator import Operator
from tensorlang.scheduling import Knobs, Schedule
from tensorlang.scheduling.knobs import Cost, Value
from tensorlang.targets import Target
from tensorlang.tuner.disk_space import is_full
from tensorlang.tuner.search.pruning import refusal
from tensorlang.tuner.workers.protocol import FAILED, ILLEGAL, Candidate, Outcome
from tensorlang.workload import Workload

_RECENT: Final = 16  # schedules that are kept until they are built


@frozen
class Scheduled:
    """The result of a schedule function."""

    ir: str = ""  # content hash of the scheduled IR; empty if it was rejected
    outcome: Outcome | None = None  # why it is not built, if so
    modelled: bool = False  # whether the algorithm's schedule predicts times

    def to_json(self) -> dict[str, object]:
        """Plain data, for `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Scheduled:
        """Read the result of `to_json`."""
        told = data["outcome"]
        outcome = None if told is None else Outcome.from_json(told)
        return cls(str(data["ir"]), outcome, bool(data["modelled"]))


class Scheduler(Protocol):
    """Runs schedule functions: a worker, or `LocalScheduler`."""

    def schedule(self, algorithm: str, knobs: Knobs) -> Scheduled:
        """Run the schedule of an algorithm; the knobs keep what it asked for."""

    def predict(
        self, algorithm: str, settings: Sequence[Mapping[str, Value]]
    ) -> list[float]:
        """The times that an algorithm's cost model gives some settings of its knobs.

        In any unit; infinite where it fails, or gives what is no time.
        """


class LocalScheduler:
    """Runs the schedules of a workload in this process, which a mistake may end.

    Attributes:
        recent: The latest schedules that were not rejected, by the candidates' keys.
    """

    def __init__(self, op: Operator, workload: Workload, target: Target) -> None:
        self._op, self._workload, self._target = op, workload, target
        self._costs: dict[str, list[Cost]] = {}
        self.recent: dict[str, Schedule] = {}

    def schedule(self, algorithm: str, knobs: Knobs) -> Scheduled:
        """Run the schedule of an algorithm.

        Raises:
            MemoryError: there is too little memory, or the schedule takes too much.
            OSError: the disk is full.
        """
        ir, outcome = "", None
        try:
            made = building.schedule(
                self._op, self._workload, self._target, algorithm, knobs
            )
            ir, outcome = self._judged(made.function)
            self._keep(Candidate(algorithm, knobs.values).key, made)
        except MemoryError:
            raise
        except TensorlangError as problem:
            outcome = Outcome(ILLEGAL, " ".join(str(problem).split()))
        except Exception as problem:
            if is_full(problem):
                raise  # by what it prints: not its fault
            said = " ".join(f"{type(problem).__name__}: {problem}".split())
            outcome = Outcome(FAILED, f"its schedule raised {said}"[:400])
        costs = self._costs.setdefault(algorithm, knobs.costs)
        return Scheduled(ir, outcome, bool(costs))

    def _keep(self, key: str, made: Schedule) -> None:
        self.recent[key] = made
        if len(self.recent) > _RECENT:
            del self.recent[next(iter(self.recent))]

    def _judged(self, func: Function) -> tuple[str, Outcome | None]:
        made = digest(func)
        if (why := refusal(func, self._target)) and made != self._usual:
            return "", Outcome(ILLEGAL, why)
        return made, None

    @cached_property
    def _usual(self) -> str:
        """The content hash of the default, which is never refused: calls run it."""
        made, _ = building.default(self._op, self._workload, self._target, {})
        return digest(made.function)

    def predict(
        self, algorithm: str, settings: Sequence[Mapping[str, Value]]
    ) -> list[float]:
        """The times that the cost model predicts."""
        if algorithm not in self._costs:
            self.schedule(algorithm, Knobs())
        return [_predicted(self._costs[algorithm], each) for each in settings]


def _predicted(costs: Sequence[Cost], setting: Mapping[str, Value]) -> float:
    try:
        total = float(sum(cost(setting) for cost in costs))
    except Exception:  # noqa: BLE001 - a model may raise anything
        return inf
    return total if 0.0 < total < inf else inf
