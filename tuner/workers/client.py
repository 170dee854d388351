"""What a worker is asked for: schedules, predictions, attempts and finals."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, Final

from tensorlang.errors import TuningError
from tensorlang.scheduling import Knobs
from tensorlang.scheduling.knobs import Value
from tensorlang.tuner.workers.process import (
    Died,
    Late,
    Silent,
    Unavailable,
    WorkerProcess,
)
from tensorlang.tuner.workers.protocol import CRASHED, HUNG, LOST, Candidate, Outcome
from tensorlang.tuner.workers.scheduler import Scheduled
from tensorlang.workload import Workload

_SCHEDULE_SECONDS: Final = 10.0  # busy seconds of a schedule function
_PREDICTIONS: Final = 64  # at once


class Worker(WorkerProcess):
    """A worker for one operator and workload; a context manager.

    Args:
        operator: The operator's id, or `module:name`.
        workload: The workload of its candidates.
        target: The target's name.
        static: Whether candidates are only compiled and estimated, without a device.
        log: File for the output of workers, tracebacks included.
        limit: Busy seconds of a schedule function.

    Attributes:
        measured: On a GPU, a readable description of the conditions of the last finals.
        disturbed: Whether other programs kept processors busy during them.
    """

    def __init__(
        self,
        operator: str,
        workload: Workload,
        target: str,
        *,
        static: bool = False,
        log: Path | None = None,
        limit: float = inf,
    ) -> None:
        super().__init__(operator, workload, target, static=static, log=log)
        self._limit = min(limit, _SCHEDULE_SECONDS)
        self._unmodelled: set[str] = set()  # algorithms whose cost models failed
        self.measured = ""
        self.disturbed = False

    def attempt(
        self,
        candidate: Candidate,
        limit: float,
        best: float = 0.0,
        *,
        left: float = inf,
        meanwhile: Callable[[], None] | None = None,
    ) -> Outcome:
        """Build, check and time a candidate within `limit` seconds.

        Excludes starting a worker and waiting for a processor.

        Args:
            limit: Busy seconds after which it counts as hung.
            best: The best time so far; much slower candidates are timed only once.
            left: Seconds until the absolute deadline.
            meanwhile: Called while the worker begins.

        Raises:
            Late: the deadline came before the limit.
            Unavailable: the worker cannot start.
            TuningError: it cannot judge any candidate.
        """
        start = time.perf_counter()
        request = {"do": "attempt", "best": best, **_plain(candidate)}
        answer = self._judged(request, limit, left, meanwhile=meanwhile)
        if isinstance(answer, Outcome):
            return replace(answer, spent={"unfinished": time.perf_counter() - start})
        return Outcome.from_json(answer)

    def open(self) -> None:
        """Start the process, if it is not running; TuningError if it cannot start."""
        self._opened(0.0)

    def prepare(self, candidate: Candidate, limit: float) -> None:
        """Put a candidate's kernels into the cache; `attempt` judges what goes wrong.

        Raises:
            Unavailable: the worker cannot start, or was ended.
        """
        try:
            self._judged({"do": "prepare", **_plain(candidate)}, limit, inf)
        except Unavailable:
            raise
        except TuningError:
            pass

    def schedule(self, algorithm: str, knobs: Knobs) -> Scheduled:
        """Run the schedule of an algorithm, which asks the knobs for its values.

        Raises:
            TuningError: the worker cannot judge any schedule.
        """
        request = {"do": "schedule", "algorithm": algorithm}
        try:
            answer = self._judged(request, self._limit, inf, knobs)
        except Unavailable as problem:
            answer = Outcome(LOST, str(problem))
        if isinstance(answer, Outcome):
            return Scheduled(outcome=answer)
        made = Scheduled.from_json(answer)
        return replace(
            made, modelled=made.modelled and algorithm not in self._unmodelled
        )

    def predict(
        self, algorithm: str, settings: Sequence[Mapping[str, Value]]
    ) -> list[float]:
        """The times that an algorithm's cost model predicts; infinite if it fails."""
        found: list[float] = []
        request = {"do": "predict", "algorithm": algorithm}
        for at in range(0, len(settings), _PREDICTIONS):
            some = [dict(each) for each in settings[at : at + _PREDICTIONS]]
            if algorithm not in self._unmodelled:
                try:
                    answer = self._judged(
                        {**request, "settings": some}, self._limit, inf
                    )
                except TuningError:
                    answer = None
                if isinstance(answer, list):
                    found += answer
                    continue
                self._unmodelled.add(algorithm)
            found += [inf] * len(some)
        return found

    def _judged(
        self,
        request: Mapping[str, object],
        limit: float,
        left: float,
        knobs: Knobs | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> Any:
        """The answer to a request; or the outcome, if it cost the worker."""
        try:
            return self._ask(request, limit, left, knobs, meanwhile)
        except Died as death:
            status, reason = LOST if death.outside else CRASHED, str(death)
        except Late:
            self.stop()
            raise
        except Silent:
            status = HUNG
            reason = f"not done after {limit:.3g} s, still {self._doing()}"
        self.stop()
        return Outcome(status, reason)

    def finals(
        self,
        candidates: Sequence[Candidate],
        rounds: int,
        limit: float,
        left: float = inf,
        *,
        checked: bool = False,
    ) -> tuple[dict[str, list[float]], dict[str, str]]:
        """Time candidates interleaved.

        Args:
            rounds: Samples of each.
            limit: Busy seconds after which they count as hung.
            left: Seconds until the absolute deadline.
            checked: Whether a process that is new to them need not check them again.

        Returns:
            Samples in seconds by key, and why the others are no longer correct.

        Raises:
            Died, Silent: the worker is gone because of one of the candidates.
        """
        items = [_plain(candidate) for candidate in candidates]
        request = {"do": "finals", "candidates": items, "rounds": rounds}
        request["checked"] = checked
        try:
            answer = self._ask(request, limit, left)
        except (Died, Silent):
            self.stop()
            raise
        self.measured = str(answer.get("measured", ""))
        self.disturbed = bool(answer.get("disturbed"))
        return answer["samples"], answer["failed"]


def _plain(candidate: Candidate) -> dict[str, object]:
    return {"algorithm": candidate.algorithm, "knobs": dict(candidate.knobs)}
