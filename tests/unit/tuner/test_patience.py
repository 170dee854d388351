"""A worker's time: what it waits for a processor does not count, all else does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tensorlang.tuner.workers import patience
from tensorlang.tuner.workers.patience import Patience

PID = os.getpid()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, float]]:
    """The seconds that have passed, and those that the only thread has waited."""
    now = {"passed": 0.0, "waited": 0.0}
    monkeypatch.setattr(time, "monotonic", lambda: now["passed"])
    monkeypatch.setattr(patience, "_waits", lambda _: {"1": round(now["waited"] * 1e9)})
    return now


def looks(clock: dict[str, float], given: Patience, share: float) -> float:
    """How long it takes until time is up, waiting for this share of it."""
    while wait := given.next_look():
        assert wait <= 0.1
        clock["passed"] += wait
        clock["waited"] += wait * share
    return clock["passed"]


def test_all_time_at_work_counts(clock: dict[str, float]) -> None:
    assert looks(clock, Patience(PID, 2.0), 0.0) == pytest.approx(2.0, abs=0.01)


def test_waiting_for_a_processor_does_not_count(clock: dict[str, float]) -> None:
    assert looks(clock, Patience(PID, 2.0), 0.9) == pytest.approx(20.0, abs=0.2)


def test_no_wait_outlasts_the_end_of_all_time(clock: dict[str, float]) -> None:
    given = Patience(PID, 2.0, until=5.0)
    assert looks(clock, given, 0.9) == pytest.approx(5.0, abs=0.01)
    assert given.late


def test_what_takes_its_limit_is_not_late(clock: dict[str, float]) -> None:
    given = Patience(PID, 2.0, until=5.0)
    assert looks(clock, given, 0.0) == pytest.approx(2.0, abs=0.01)
    assert not given.late


def test_waiting_for_the_device_does_not_count(clock: dict[str, float]) -> None:
    given = Patience(PID, 2.0, until=60.0)
    given.paused = True
    while clock["passed"] < 30.0:
        clock["passed"] += given.next_look()
    given.paused = False
    assert looks(clock, given, 0.0) == pytest.approx(32.0, abs=0.3)


def test_a_suspended_process_is_waited_for_a_while(
    clock: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    given, stopped = Patience(PID, 2.0), [True]
    monkeypatch.setattr(patience, "_is_suspended", lambda _: stopped[0])
    while clock["passed"] < 4.0:
        clock["passed"] += given.next_look()
    assert not given.suspended
    stopped[0] = False
    clock["passed"] += 0.1
    given.next_look()
    stopped[0] = True
    while clock["passed"] < 8.0:
        clock["passed"] += given.next_look()
    assert not given.suspended  # it went on in between
    while not given.suspended:
        clock["passed"] += given.next_look()
    assert clock["passed"] == pytest.approx(9.0, abs=0.3)


def test_what_stood_still_with_the_tuner_has_lost_nothing(
    clock: dict[str, float],
) -> None:
    given = Patience(PID, 2.0)
    clock["passed"] = 60.0
    assert given.next_look() > 0


def test_many_lines_at_once_are_few_looks(
    clock: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    monkeypatch.setattr(patience, "_waits", lambda pid: looked.append(pid) or {})
    given = Patience(PID, 2.0)
    for _ in range(1000):
        clock["passed"] += 1e-3
        assert given.next_look() > 0
    assert len(looked) <= 21
    assert looks(clock, given, 0.0) == pytest.approx(2.0, abs=0.01)


@pytest.mark.skipif(
    not os.path.exists(f"/proc/{PID}/schedstat"),  # noqa: PTH110 - one word
    reason="only Linux tells how long a thread has waited",
)
def test_linux_tells_of_threads_and_of_processes_that_they_started() -> None:
    spin = "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c',"
    spin += "'import time; time.sleep(9)']); print(p.pid, flush=True); p.wait()"
    with subprocess.Popen(
        [sys.executable, "-c", spin], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        child = process.stdout.readline().strip()
        waits = patience._waits(process.pid)
        assert {str(process.pid), child} <= waits.keys()
        assert min(waits.values()) >= 0
        process.kill()
        os.kill(int(child), 9)
    assert patience._waits(process.pid) == {}
