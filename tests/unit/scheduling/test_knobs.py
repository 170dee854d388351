"""Knobs: suggested by a trial, replayed from a record, or by default."""

from __future__ import annotations

import math

import pytest
from optuna.trial import FixedTrial

from tensorlang.errors import ArgumentError, ScheduleError
from tensorlang.scheduling.knobs import Choice, Integer, Knobs


def _ask(knobs: Knobs) -> tuple[object, ...]:
    return (
        knobs.choice("rows", [4, 6, 8], default=6),
        knobs.choice("order", ["ijk", None]),
        knobs.integer("depth", 16, 512, log=True, default=64),
        knobs.integer("lanes", 8, 32, step=8),
        knobs.flag("stream", default=True),
    )


def test_defaults():
    assert _ask(Knobs()) == (6, "ijk", 64, 8, True)


def test_a_trial_suggests():
    drawn = {"rows": 8, "order": None, "depth": 100, "lanes": 24, "stream": False}
    knobs = Knobs(trial=FixedTrial(drawn))
    assert _ask(knobs) == tuple(drawn.values())
    assert knobs.values == drawn
    assert knobs.domains["depth"] == Integer(16, 512, log=True)
    assert knobs.domains["stream"] == Choice((False, True))


def test_a_record_replays():
    kept = {"rows": 4, "order": None, "depth": 17, "lanes": 32, "stream": False}
    assert _ask(Knobs.replay(kept)) == tuple(kept.values())


def test_pinned_knobs_leave_the_rest_to_the_default():
    knobs = Knobs(pinned={"rows": 8, "tile": 3})
    assert _ask(knobs) == (8, "ijk", 64, 8, True)
    assert knobs.unasked() == ("tile",)


def test_a_knob_asked_for_twice_answers_the_same():
    knobs = Knobs(pinned={"rows": 8})
    assert knobs.choice("rows", [4, 8]) == knobs.choice("rows", [4, 8]) == 8


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"rows": 5}, "knob 'rows' is one of 4, 6, 8, not 5"),
        ({"rows": "6"}, "knob 'rows' is one of 4, 6, 8, not '6'"),
        ({"rows": 6.0}, "knob 'rows' is one of 4, 6, 8, not 6.0"),
        ({"rows": True}, "not True"),
        ({"depth": 513}, "'depth' is an integer from 16 to 512, not 513"),
        ({"lanes": 12}, "'lanes' is an integer from 8 to 32 in steps of 8, not 12"),
        ({"lanes": True}, "not True"),
        ({"stream": 1}, "'stream' is one of False, True, not 1"),
        ({"order": "__import__('os')"}, "'order' is one of 'ijk', None, not"),
        ({"depth": math.nan}, "not nan"),
        ({"depth": [16]}, r"not \[16\]"),
    ],
)
def test_values_outside_of_the_domain_are_refused(values, sentence):
    with pytest.raises(ArgumentError, match=sentence):
        _ask(Knobs(pinned=values))


def test_a_record_without_a_knob_is_refused():
    with pytest.raises(ArgumentError, match=r"'order' \(one of 'ijk', None\) has no"):
        _ask(Knobs.replay({"rows": 4}))


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda k: k.choice("a", []), "knob 'a' has no options"),
        (lambda k: k.choice("a", [1, 2], default=3), "default 3 is not one of 1, 2"),
        (lambda k: k.integer("a", 5, 4), "5..4 in steps of 1 is no range"),
        (lambda k: k.integer("a", 0, 4, log=True), "no range for a log scale"),
        (lambda k: k.integer("a", 1, 9, default=10), "default 10 is not an integer"),
        (
            lambda k: (k.choice("a", [1]), k.choice("a", [2])),
            "'a' is asked for as one of 2, and was before as one of 1",
        ),
    ],
)
def test_declarations_that_cannot_be(ask, sentence):
    with pytest.raises((ArgumentError, ScheduleError), match=sentence):
        ask(Knobs())
