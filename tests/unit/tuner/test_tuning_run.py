"""Exploring: what ends it, and what does not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

import tensorlang.schedules  # noqa: F401 - what the fixture puts back, it must have
from tensorlang import targets
from tensorlang.ir.definitions.frontend import compute
from tensorlang.ops import find, operator
from tensorlang.schedules.library import SCHEDULES
from tensorlang.scheduling import Knobs, Schedule, schedule
from tensorlang.tuner import tuning
from tensorlang.tuner.search.search import Search
from tensorlang.tuner.search.space import Space
from tensorlang.tuner.storage.rows import Row
from tensorlang.tuner.tuning_run import Run
from tensorlang.tuner.workers.process import Late
from tensorlang.tuner.workers.protocol import CRASHED, HUNG, OK, Candidate, Outcome

FAMILY = "test_running"
SIZES = [1, 2, 4, 8, 16, 32]


class Kept:
    """Trials in a list."""

    unread, blind, trouble = 0, False, ""

    def share(self, _: Candidate) -> bool:
        return True

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def news(self) -> list[Row]:
        return list(self.rows)

    def claimed(self) -> list[Row]:
        return []

    def claim(self, _: Row) -> bool:
        return True

    def hold(self, row: Row) -> None:
        self.rows.append(row)

    def deliver(self) -> None:
        self.stored = len(self.rows)


class Worker:
    """One that takes long to start, and is lost with each second candidate."""

    start_seconds = 2.0
    deadline = 0.0

    def __init__(self, clock: dict[str, float], status: str) -> None:
        self.clock, self.status, self.tried = clock, status, 0

    def attempt(
        self,
        candidate: Candidate,
        limit: float,
        best: float,
        *,
        left: float,
        meanwhile: Callable[[], None],
    ) -> Outcome:
        del candidate, best
        meanwhile()
        self.tried += 1
        self.clock["now"] += 3.0
        if self.tried % 2:
            return Outcome(OK, "", 1.0 / self.tried, spent={"check": 0.1})
        if self.status == HUNG:
            self.clock["now"] += min(limit, left)
            if left < limit:
                raise Late("no answer before the deadline")
        return Outcome(self.status, "lost", spent={"unfinished": 3.0})


@operator("test_running.copy", family=FAMILY)
def copy(x: Any) -> Any:
    return compute(x.shape, lambda i: x[i], name="y")


@pytest.fixture(autouse=True)
def scheduled() -> Iterator[None]:
    """A schedule of six configurations, for one test."""
    before = dict(SCHEDULES)

    @schedule(FAMILY)
    def body(s: Schedule, knobs: Knobs) -> None:
        s.split("i", [None, knobs.choice("size", SIZES)])

    yield
    SCHEDULES.clear()
    SCHEDULES.update(before)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    now = {"now": 0.0}
    monkeypatch.setattr(time, "monotonic", lambda: now["now"])
    return now


def explored(worker: Worker, **options: Any) -> Search:
    workload = copy.workload((4096,), dtypes="f32")
    run = Run(copy, workload, targets.host(), static=True, _begun=0.0, **options)
    search = Search(Space(copy, workload, targets.host()), Kept(), 0)
    run.measure(search, worker, search.space.default().candidate)  # type: ignore[arg-type]
    return search


def test_workers_that_start_slowly_do_not_end_the_exploring(
    clock: dict[str, float],
) -> None:
    search = explored(Worker(clock, CRASHED), budget=300.0, limit=2.0)
    assert search.counts == {OK: 3, CRASHED: 3}
    assert search.exhausted


def test_hung_is_what_took_its_limit_not_what_the_budget_cut_off(
    clock: dict[str, float],
) -> None:
    search = explored(Worker(clock, HUNG), budget=300.0, limit=2.0)
    assert search.counts == {OK: 3, HUNG: 3}
    clock["now"] = 0.0
    search = explored(Worker(clock, HUNG), budget=20.0, limit=60.0)
    assert search.counts == {OK: 1}
    assert clock["now"] >= 20.0 - 1.0


class Timed(Worker):
    """Each is faster than the one before, by its trial; side by side all are alike."""

    measured = ""
    disturbed = False

    def __init__(self, clock: dict[str, float]) -> None:
        super().__init__(clock, OK)
        self.compared: list[int] = []

    def attempt(
        self, candidate: Candidate, limit: float, best: float, **others: Any
    ) -> Outcome:
        del candidate, limit, best, others
        self.tried += 1
        return Outcome(OK, "", 1.0 / self.tried, spent={"check": 0.1})

    def finals(
        self,
        candidates: Sequence[Candidate],
        rounds: int,
        limit: float,
        left: float = 0.0,
        *,
        checked: bool = False,
    ) -> tuple[dict[str, list[float]], dict[str, str]]:
        del limit, left, checked
        self.compared.append(self.tried)
        return {each.key: [0.5] * rounds for each in candidates}, {}

    def stop(self) -> None:
        """It has no process."""


def test_the_best_is_compared_with_the_default_early_and_again(
    clock: dict[str, float],
) -> None:
    worker = Timed(clock)
    workload = copy.workload((4096,), dtypes="f32")
    run = Run(copy, workload, targets.host(), _begun=0.0)
    search = Search(Space(copy, workload, targets.host()), Kept(), 0)
    default = search.space.default().candidate
    run.measure(search, worker, default)  # type: ignore[arg-type]
    assert worker.compared[:2] == [2, 4]  # then the finals
    assert worker.compared[2:] == [6] * (len(worker.compared) - 2)
    assert search.known[default.key][1].seconds == 0.5
    assert search.fastest() == 0.5


def test_without_time_for_finals_the_last_comparison_counts(
    clock: dict[str, float],
) -> None:
    class Late(Timed):
        def finals(
            self,
            candidates: Sequence[Candidate],
            rounds: int,
            limit: float,
            left: float = 0.0,
            *,
            checked: bool = False,
        ) -> tuple[dict[str, list[float]], dict[str, str]]:
            clock["now"] = 100.0  # after which there is no time for more
            return super().finals(candidates, rounds, limit, left, checked=checked)

    workload = copy.workload((4096,), dtypes="f32")
    run = Run(copy, workload, targets.host(), budget=60.0, _begun=0.0)
    search = Search(Space(copy, workload, targets.host()), Kept(), 0)
    worker, default = Late(clock), search.space.default().candidate
    result = run.measure(search, worker, default)  # type: ignore[arg-type]
    assert worker.compared == [2]
    assert worker.deadline == 60.0
    assert default.key in result.samples
    assert run.doubt == ""  # all are alike


def test_a_slow_default_leaves_time_for_something_to_compare(
    clock: dict[str, float],
) -> None:
    class Slow(Timed):
        start_seconds = 12.0

        def attempt(self, *arguments: Any, **options: Any) -> Outcome:
            clock["now"] += 2.0 if self.tried else 20.0
            made = super().attempt(*arguments, **options)
            return replace(made, seconds=1e-3 / self.tried)

    workload = copy.workload((4096,), dtypes="f32")
    run = Run(copy, workload, targets.host(), budget=30.0, _begun=0.0)
    run.whole = 30.0
    search = Search(Space(copy, workload, targets.host()), Kept(), 0)
    worker, default = Slow(clock), search.space.default().candidate
    result = run.measure(search, worker, default)  # type: ignore[arg-type]
    assert search.counts == {OK: 2}
    assert default.key in result.samples
    assert clock["now"] <= 30.0


def test_a_run_says_that_pins_pass_records_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TENSORLANG_PIN", "threefry:lanes=8")
    said = tuning._passed_over(find("bits"))
    assert said == "TENSORLANG_PIN fixes lanes: while it does, records are passed over"
    assert not tuning._passed_over(find("math.add"))
