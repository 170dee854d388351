"""Tuners that share a study: claims, news, kills, and a server that is away."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import Any

import optuna
import pytest

from tensorlang.errors import RecordError
from tensorlang.scheduling.knobs import Integer
from tensorlang.tuner.storage import storage
from tensorlang.tuner.storage.rows import Row, parameter
from tensorlang.tuner.storage.storage import Trials
from tensorlang.tuner.workers.protocol import LOST, OK, WRONG, Candidate, Outcome

N = Integer(0, 1 << 20)


def row(number: int, status: str = OK) -> Row:
    outcome = Outcome(status, "", 1e-3 + number, ir=f"code {number}")
    named = {parameter("direct", "n", N): (N, number)}
    return Row.of(Candidate("direct", {"n": number}), outcome, named)


def claim(number: int) -> Row:
    return row(number, LOST)


@pytest.fixture
def study(request: pytest.FixtureRequest) -> str:
    return request.node.name


def test_a_claim_is_for_one_tuner(url: str, study: str) -> None:
    one, other = Trials(url, study), Trials(url, study)
    assert one.claim(claim(0))
    assert not other.claim(claim(0))
    assert other.claimed() == [claim(0)]
    assert one.claimed() == []
    assert other.claim(claim(1))
    assert one.news() == other.news() == []
    assert one.claimed() == [claim(1)]
    one.add(row(0))
    assert not other.claim(claim(0))  # it is told
    assert other.news() == [row(0)]
    assert other.claimed() == []
    other.add(row(1, WRONG))
    assert one.news() == [row(0), row(1, WRONG)]
    assert list(Trials(url, study).finished()) == [row(0), row(1, WRONG)]


def test_optuna_sees_claims_and_their_outcomes(url: str, study: str) -> None:
    trials = Trials(url, study)
    found = optuna.load_study(
        study_name=study, storage=url.replace(":", "+psycopg:", 1)
    )
    assert trials.claim(claim(3))
    assert [trial.state.name for trial in found.trials] == ["RUNNING"]
    trials.add(row(3))
    assert trials.claim(claim(4))
    trials.close()
    assert [trial.state.name for trial in found.trials] == ["COMPLETE", "FAIL"]
    assert [trial.number for trial in found.trials] == [0, 1]
    assert found.best_params == {"direct.n: an integer from 0 to 1048576": 3}


def test_what_is_not_measured_is_free_again(url: str, study: str) -> None:
    one, other = Trials(url, study), Trials(url, study)
    assert one.claim(claim(0))
    assert one.claim(claim(1))  # gives up the first
    assert other.claim(claim(0))
    one.close()
    assert other.claim(claim(1))


def test_a_killed_tuners_claim_is_free_after_the_grace(
    url: str, study: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, other = Trials(url, study), Trials(url, study)
    killed._closed.set()  # no heartbeat any more
    assert killed.claim(claim(0))
    assert not other.claim(claim(0))
    monkeypatch.setattr(storage, "GRACE", 0.0)
    assert other.claim(claim(0))
    monkeypatch.undo()
    killed.add(row(0))  # it was only stopped: its outcome counts
    assert other.news() == [row(0)]
    other.add(row(0))
    assert list(other.finished()) == [row(0), row(0)]


KILLED = """
import os, signal, sys
from tensorlang.tuner.storage import claimants
from tensorlang.tuner.storage.rows import Row
from tensorlang.tuner.storage.storage import Trials
from tensorlang.tuner.workers.protocol import LOST, Candidate, Outcome

outcome = Outcome(LOST, claimants.described(), ir="code 0")
assert Trials(*sys.argv[1:]).claim(Row.of(Candidate("direct", {}), outcome, {}))
print("claimed", flush=True)
signal.pause()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_claim_of_a_dead_process_of_this_host_is_free_at_once(
    url: str, study: str
) -> None:
    other = Trials(url, study)
    command = [sys.executable, "-c", KILLED, url, study]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"claimed\n"
        assert not other.claim(claim(0))
        killed.kill()
    assert other.claim(claim(0))
    other.close()


def test_a_heartbeat_keeps_a_claim(
    url: str, study: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "HEARTBEAT", 0.05)
    monkeypatch.setattr(storage, "GRACE", 2.0)
    one, other = Trials(url, study), Trials(url, study)
    assert one.claim(claim(0))
    time.sleep(3)
    assert not other.claim(claim(0))
    one.close()


def test_an_outcome_that_was_delivered_without_an_answer_is_not_added_twice(
    url: str, study: str
) -> None:
    trials = Trials(url, study)
    assert trials.claim(claim(0))
    held = dict(trials._mine)
    trials.add(row(0))
    trials._mine = held
    trials.add(row(0))
    assert list(trials.finished()) == [row(0)]


def test_tuners_that_start_at_once_measure_each_code_once(url: str, study: str) -> None:
    measured: list[int] = []

    def tune() -> None:
        trials = Trials(url, study)
        told: set[str] = set()
        for number in range(25):
            told |= {each.outcome.ir for each in trials.news()}
            if claim(number).outcome.ir not in told and trials.claim(claim(number)):
                measured.append(number)
                trials.add(row(number))
        trials.close()

    threads = [threading.Thread(target=tune) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(measured) == list(range(25))
    assert len(list(Trials(url, study).finished())) == 25


def test_a_connection_that_ends_is_made_again(url: str, study: str) -> None:
    one, other = Trials(url, study), Trials(url, study)
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> "
    for number in range(3):
        with other._engine.begin() as connection:
            connection.exec_driver_sql(f"{ended} pg_backend_pid()")
        assert one.claim(claim(number))
        with other._engine.begin() as connection:
            connection.exec_driver_sql(f"{ended} pg_backend_pid()")
        one.add(row(number))
        assert one.trouble == ""
    assert len(other.news()) == 3


def test_studies_do_not_mix(url: str, study: str) -> None:
    one, other = Trials(url, f"{study} here"), Trials(url, f"{study} there")
    assert one.claim(claim(0))
    assert other.claim(claim(0))
    one.add(row(0))
    assert other.news() == []
    other.add(row(0))
    assert len(one.news()) == len(other.news()) == 1


def test_a_server_that_is_killed_or_away_loses_nothing(
    server: Any, url: str, study: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_PAUSE", 0.2)
    monkeypatch.setattr(storage, "_PATIENCE", 0.0)
    one, other = Trials(url, study), Trials(url, study)
    assert one.claim(claim(0))
    server.stop()
    one.add(row(0))
    assert "cannot be used" in one.trouble
    assert one.claim(claim(1))  # nobody can say whether it is free
    one.add(row(1))
    with pytest.raises(RecordError, match="cannot be used"):
        list(one.finished())
    late = Trials(url, study)  # the URL was right before
    late.add(row(2))
    assert late.news() == []
    server.start()
    time.sleep(0.3)
    one.add(row(3))
    late.add(row(4))
    assert one.trouble == late.trouble == ""
    assert sorted(each.outcome.seconds for each in other.news()) == [
        row(number).outcome.seconds for number in range(5)
    ]
    for trials in (one, other, late):
        trials.close()


def after_the_outage(trials: Trials) -> list[Row]:
    """The news once the storage can be used."""
    found = []
    for _ in range(300):
        if not trials.trouble:
            break
        time.sleep(0.1)
        found += trials.news()
    assert trials.trouble == ""
    return found


def test_a_tuner_that_starts_while_the_server_is_away_or_recovers_goes_on(
    server: Any, url: str, study: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_reached", set())  # as in a new process
    monkeypatch.setattr(storage, "_PAUSE", 0.2)
    monkeypatch.setattr(storage, "_PATIENCE", 0.0)
    server.stop()
    back = threading.Timer(2.0, server.start)
    back.start()
    trials = Trials(url, study)  # waits
    trials.add(row(0))
    back.join()
    assert trials.news() + after_the_outage(trials) == [row(0)]
    trials.close()

    monkeypatch.setattr(storage, "_reached", set())
    server.stop()
    server.start_recovering()
    begun = time.monotonic()
    early = Trials(url, study)  # does not wait
    assert time.monotonic() - begun < storage._PASSES
    assert "starting up" in early.trouble
    assert early.claim(claim(1))
    early.add(row(1))
    assert "starting up" in early.trouble
    server.recover()
    assert after_the_outage(early) == [row(0), row(1)]
    early.close()


def test_a_server_that_never_answered_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    monkeypatch.setattr(storage, "_PASSES", 1.0)
    with pytest.raises(RecordError, match="cannot be used"):
        Trials("postgresql://postgres@/postgres?host=/nonexistent", "study")
