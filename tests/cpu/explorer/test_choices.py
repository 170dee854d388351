"""Why knobs have their values: what models compared, and reasons of rules."""

from __future__ import annotations

import pytest

from tensorlang.explorer.choices import comparisons, reasons
from tensorlang.explorer.page import page
from tensorlang.scheduling.knobs import Candidate, Knobs

SMALL = Candidate({"rows": 4}, 100.0, {"arithmetic": 80.0, "into L1": 0.0})
LARGE = Candidate({"rows": 6}, 110.0, {"arithmetic": 95.0, "into L1": 0.0})


def asked(rows, *candidates):
    knobs = Knobs(pinned={"rows": rows})
    knobs.choice("rows", [4, 6, 8], default=4, why="it is small")
    knobs.compared.append(lambda: candidates)
    return knobs


def test_the_next_candidate_and_what_it_costs():
    (found,) = comparisons(asked(4, LARGE, SMALL))
    assert found.said == (
        "100 cycles predicted (arithmetic 80); "
        "next of 2: rows=6, 1.10\N{MULTIPLICATION SIGN} its time, arithmetic 95"
    )
    assert found.rows == [("rows=4", 100.0, [80.0]), ("rows=6", 110.0, [95.0])]


def test_parts_that_overlap_and_means_are_said_to_be_so():
    terms = {"arithmetic": 300.0, "into L1": 200.0}
    (found,) = comparisons(asked(4, Candidate({"rows": 4}, 350.0, terms)))
    assert found.said.startswith(
        "350 cycles predicted (in part at the same time: arithmetic 300, into L1 200)"
    )
    sizes = {"24 rows": 100.0, "512 rows": 400.0}
    own = Candidate({"rows": 4}, 200.0, terms, sizes)
    other = Candidate({"rows": 6}, 200.1, {}, {"24 rows": 90.0, "512 rows": 445.0})
    (found,) = comparisons(asked(4, own, other))
    assert found.said == (
        "200 cycles predicted, the geometric mean of 100 for 24 rows and 400 for 512 "
        "rows (of 512 rows, in part at the same time: arithmetic 300, into L1 200); "
        "next of 2: rows=6, 1.00\N{MULTIPLICATION SIGN} its time, 512 rows 445"
    )
    assert found.terms == ["24 rows", "512 rows", "arithmetic", "into L1"]


def test_values_that_the_model_does_not_compare():
    (found,) = comparisons(asked(8, LARGE, SMALL))
    assert found.said == "none of the 2 candidates that the model compares"
    assert [row[0] for row in found.rows] == ["rows=4", "rows=6"]
    (found,) = comparisons(asked(4, SMALL))
    assert found.said == "100 cycles predicted (arithmetic 80), the only candidate"


def test_reasons_are_those_of_defaults():
    assert list(reasons(asked(4))) == ["rows=4: it is small"]
    assert list(reasons(asked(6))) == []


@pytest.mark.parametrize("name", ["dense", "conv2d"])
def test_the_default_is_among_the_fastest_candidates(subject, name):
    made = subject(name)
    (found, *_) = comparisons(made.knobs)
    assert found.own is not None
    assert found.own.cycles * 0.98 <= min(other.cycles for other in found.others)
    assert {"arithmetic", "into L1"} <= {*found.terms}
    if name == "conv2d":  # of dense the number of rows is open: a mean of two
        assert found.own.cycles >= max(found.own.terms.values())
    assert "candidates of the cost model" in page(made)
