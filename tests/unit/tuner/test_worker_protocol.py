"""Messages of tuner and worker."""

from __future__ import annotations

import json

import pytest

from tensorlang.errors import TuningError
from tensorlang.scheduling.knobs import Choice, Domain, Integer
from tensorlang.tuner.workers import protocol
from tensorlang.tuner.workers.protocol import ILLEGAL, Outcome
from tensorlang.tuner.workers.scheduler import Scheduled

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
