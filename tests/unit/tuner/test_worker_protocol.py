"""Messages of tuner and worker."""

from __future__ import annotations

import json
import os
from unittest.mock import Mock

import pytest

from tensorlang.errors import TuningError
from tensorlang.scheduling.knobs import Choice, Domain, Integer
from tensorlang.tuner.workers import protocol
from tensorlang.tuner.workers.client import Worker
from tensorlang.tuner.workers.patience import Patience
from tensorlang.tuner.workers.protocol import ILLEGAL, Outcome
from tensorlang.tuner.workers.scheduler import Scheduled
from tensorlang.workload import Workload

DOMAINS: list[Domain] = [
    Choice((1, 2.5, "a", None)),
    Choice((False, True)),
    Choice((0, 1)),
    Integer(1, 64, log=True),
    Integer(-3, 9, step=4),
]


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_domains_go_through_json(domain: Domain) -> None:
    told = json.loads(json.dumps(protocol.domain_to_json(domain)))
    found = protocol.domain_from_json(told)
    assert found == domain
    assert str(found) == str(domain)


def test_what_a_schedule_gives_goes_through_json() -> None:
    for made in (Scheduled("ir", None, True), Scheduled(outcome=Outcome(ILLEGAL, "x"))):
        assert Scheduled.from_json(json.loads(json.dumps(made.to_json()))) == made


@pytest.mark.parametrize("line", ["", "[1]", "nonsense", '{"a": '])
def test_what_is_no_message_is_refused(line: str) -> None:
    with pytest.raises(TuningError, match="is not a message"):
        protocol.read(line)


def test_what_is_expected_of_all_costs_no_candidate_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = Worker("nn.relu", Workload("nn.relu", ((32,),), ("f32",)), "llvm")
    messages = iter(['{"stage": "expect"}', '{"stage": "check"}', '{"answer": 1}'])
    paused = []

    def line(patience: Patience) -> str:
        paused.append(patience.paused)
        return next(messages)

    monkeypatch.setattr(worker, "_process", Mock(pid=os.getpid()))
    monkeypatch.setattr(worker, "_line", line)
    assert worker._answer(1.0) == 1
    assert paused == [False, True, False]
