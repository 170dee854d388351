"""What other programs do meanwhile is noticed, what the tuner does is not."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from tensorlang.tuner.measurement import processor_load
from tensorlang.tuner.measurement.processor_load import Load


@pytest.fixture
def spent(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The clock, seconds of all processors, and the tuner's own."""
    now = {"clock": 0.0, "busy": 100.0, "own": 10.0}
    monkeypatch.setattr(time, "monotonic", lambda: now["clock"])
    monkeypatch.setattr(processor_load, "_busy", lambda: now["busy"])
    monkeypatch.setattr(processor_load, "_own", lambda: now["own"])
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    return now


def passed(spent: dict[str, float], seconds: float, own: float, others: float) -> Load:
    found = Load()
    spent["clock"] += seconds
    spent["own"] += own
    spent["busy"] += own + others
    return found


def test_a_machine_of_ones_own_is_not_worth_a_word(spent: dict[str, float]) -> None:
    found = passed(spent, 10.0, own=40.0, others=1.0)
    assert found.others() == pytest.approx(0.1)
    assert found.trouble(4) == ""


def test_others_beside_free_processors_do_not_disturb(spent: dict[str, float]) -> None:
    assert passed(spent, 10.0, own=20.0, others=20.0).trouble(2) == ""


def test_others_on_the_same_processors_are_said(spent: dict[str, float]) -> None:
    found = passed(spent, 10.0, own=20.0, others=20.0)
    assert found.trouble(4) == (
        "other programs kept 2.0 of 4 processors busy meanwhile: the times are less "
        "certain"
    )


def test_no_time_and_no_numbers_are_no_load(spent: dict[str, float]) -> None:
    assert passed(spent, 0.0, own=0.0, others=1.0).others() == 0.0
    assert passed(spent, 10.0, own=5.0, others=-5.0).others() == 0.0


def test_the_system_s_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert processor_load._own() > 0
    assert processor_load._busy() >= 0

    def missing(*_: Any) -> str:
        raise FileNotFoundError("/proc/stat")

    monkeypatch.setattr(processor_load.Path, "read_text", missing)
    assert processor_load._busy() == 0.0
