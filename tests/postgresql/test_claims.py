"""Tuners that share a study: claims, news, kills, and a server that is away."""

from __future__ import annotations

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


def test_a_server_that_never_answered_is_an_error() -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with pytest.raises(RecordError, match="cannot be used"):
        Trials("postgresql://postgres@/postgres?host=/nonexistent", "study")
