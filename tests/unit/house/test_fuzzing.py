"""What fuzzers find: wrong cases, aborts and hangs, each shrunk to a simplest one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import strategies as st

FUZZ = Path(__file__).parents[2] / "fuzz.py"
NUMBERS = st.integers(0, 10_000)


def _from_50_on(action):
    def check(number):
        if number >= 50:
            action()
        return ["small"]

    return check


def _raise():
    raise KeyError("large")


@pytest.fixture
def simplest(programs):
    """The code of the case that a search ends with."""

    def find(action, *, apart):
        fuzzer = programs.fuzzing.Fuzzer(NUMBERS, _from_50_on(action), repr, seconds=1)
        with pytest.raises(programs.fuzzing.CaseFailedError) as caught:
            programs.fuzzing.search(fuzzer, 0, 60, apart_from=1 if apart else None)
        return caught.value

    return find


def test_a_failing_case_is_shrunk(simplest):
    found = simplest(_raise, apart=False)
    assert found.code == "50"
    assert found.problem == "KeyError: 'large'"


def test_an_abort_is_a_case_too(simplest):
    found = simplest(os.abort, apart=True)
    assert found.code == "50"
    assert "ended with code -6" in found.problem


def test_what_never_ends_is_a_case_too(programs):
    fuzzer = programs.fuzzing.Fuzzer(st.just(0), lambda _: time.sleep(60), repr, 1)
    with pytest.raises(programs.fuzzing.CaseFailedError, match="more than 1 s"):
        programs.fuzzing.search(fuzzer, 0, 1, apart_from=1)


def test_words_are_counted(programs):
    fuzzer = programs.fuzzing.Fuzzer(st.just(1), _from_50_on(_raise), repr)
    assert programs.fuzzing.search(fuzzer, 0, 1) == {"cases": 1, "small": 1}


def test_the_command_checks_in_processes_of_its_own():
    done = subprocess.run(
        [sys.executable, FUZZ, "text", "--count", "3"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "text: 3 cases, 0 batches with a fault" in done.stdout
