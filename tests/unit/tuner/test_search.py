"""The search: each code once, the same seed the same sequence, hints early."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tensorlang.schedules  # noqa: F401 - what the fixture puts back, it must have
from tensorlang import targets
from tensorlang.ir.definitions.frontend import compute
from tensorlang.ops import algorithm, operator
from tensorlang.schedules.library import SCHEDULES
from tensorlang.scheduling import Knobs, Schedule, schedule
from tensorlang.tuner.search.search import Search, kind
from tensorlang.tuner.search.space import Space
from tensorlang.tuner.storage.rows import Row
from tensorlang.tuner.tuning_run import space_note
from tensorlang.tuner.workers.builders import Builders
from tensorlang.tuner.workers.protocol import ILLEGAL, OK, WRONG, Candidate, Outcome

FAMILY = "test_search"


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
        pass


@operator("test_search.copy", family=FAMILY)
def copy(x: Any) -> Any:
    return compute(x.shape, lambda i: x[i], name="y")


@pytest.fixture
def scheduled() -> Iterator[Callable[[Callable[[Schedule, Knobs], None]], None]]:
    """Give `copy` a schedule for one test."""
    before = dict(SCHEDULES)
    yield lambda body: schedule(FAMILY)(body) and None
    SCHEDULES.clear()
    SCHEDULES.update(before)


def space() -> Space:
    return Space(copy, copy.workload((4096,), dtypes="f32"), targets.host())


def vectors(s: Schedule, knobs: Knobs) -> None:
    """32 configurations, 8 of which are refused."""
    lanes = knobs.choice("lanes", [4, 8, 16, 0])
    chunk = knobs.choice("chunk", [1, 2, 4, 8, 16, 32, 64, 128])
    _, inner = s.split("i", [None, lanes])
    s.split("i_0", [None, chunk])
    s.vectorize(inner)


def outcome_of(candidate: Candidate) -> Outcome:
    """Larger is better, up to a point, but lanes of 16 are wrong."""
    lanes, chunk = candidate.knobs["lanes"], candidate.knobs["chunk"]
    if lanes == 16:
        return Outcome(WRONG, f"{chunk} elements are wrong")
    return Outcome(OK, "", 1.0 / lanes + abs(chunk - 16) / 1000)


def explored(search: Search, most: int = 1000) -> list[Candidate]:
    tried = []
    for suggestion in search.suggestions():
        if len(tried) == most:
            break
        tried.append(suggestion.candidate)
        known = suggestion.point.outcome
        search.file(suggestion, known or outcome_of(suggestion.candidate))
    return tried


def test_a_small_space_is_tried_whole_each_once(scheduled: Any) -> None:
    scheduled(vectors)
    search = Search(space(), Kept(), 0)
    tried = explored(search)
    assert len(tried) == len({c.key for c in tried}) == 32
    assert search.exhausted
    assert search.counts == {"ok": 16, "wrong": 8, "illegal": 8}
    best, outcome = search.best(1)[0]
    assert best.knobs == {"lanes": 8, "chunk": 16}
    assert outcome.seconds == search.fastest()


def test_the_same_seed_and_outcomes_suggest_the_same(scheduled: Any) -> None:
    scheduled(vectors)
    one, same, other = (
        [c.key for c in explored(Search(space(), Kept(), seed), 20)]
        for seed in (7, 7, 8)
    )
    assert one == same
    assert one != other
    assert one[0] == other[0]  # the default comes first


def test_failures_are_counted_by_kind(scheduled: Any) -> None:
    scheduled(vectors)
    search = Search(space(), Kept(), 0)
    explored(search)
    wrong = [said for said in search.reasons if said.startswith("wrong")]
    assert len(wrong) == 8  # each by its name
    for said in wrong:
        assert re.fullmatch(r"wrong: direct\(.*\): \d+ elements are wrong", said)
    assert sum(search.reasons.values()) == 16
    assert len(search.reasons) <= 10  # the others by kind
    assert kind("at [3], 7 of\n 12 x") == "at N N of N x"


def test_rows_of_earlier_runs_answer(scheduled: Any) -> None:
    scheduled(vectors)
    kept = Kept()
    first = explored(Search(space(), kept, 0), 12)
    second = explored(Search(space(), kept, 0))
    assert not {c.key for c in first} & {c.key for c in second}
    assert len(first) + len(second) == 32
    assert explored(Search(space(), kept, 0)) == []


def test_a_row_whose_knobs_now_make_other_code_is_tried_again(scheduled: Any) -> None:
    scheduled(vectors)
    kept = Kept()
    explored(Search(space(), kept, 0))
    for number, row in enumerate(kept.rows):
        if row.outcome.ir:  # as if the schedule had made other code then
            old = dataclasses.replace(row.outcome, ir=f"older {number}", seconds=1e-9)
            kept.rows[number] = dataclasses.replace(row, outcome=old)
    search = Search(space(), kept, 0)
    assert search.best(1) == []
    assert len(explored(search)) == 24
    assert search.best(1)[0][0].knobs == {"lanes": 8, "chunk": 16}


def test_the_same_code_under_other_knobs_is_measured_once(scheduled: Any) -> None:
    def idle(s: Schedule, knobs: Knobs) -> None:
        knobs.choice("idle", list(range(8)))
        _, inner = s.split("i", [None, knobs.choice("lanes", [4, 8])])
        s.vectorize(inner)

    scheduled(idle)
    search = Search(space(), Kept(), 0)
    tried = []
    for suggestion in search.suggestions():
        tried.append(suggestion.candidate)
        search.file(suggestion, Outcome(OK, "", float(len(tried))))
    assert sorted(c.knobs["lanes"] for c in tried) == [4, 8]
    assert len(search.best(5)) == 2


def test_a_lucky_time_is_corrected_and_no_trial_is_added(scheduled: Any) -> None:
    scheduled(vectors)
    kept = Kept()
    search = Search(space(), kept, 0)
    explored(search)
    lucky = next(c for c, o in search.known.values() if o.ok and c.knobs["lanes"] == 4)
    search.correct(lucky, 1e-9)
    assert search.best(1)[0][0] == lucky
    search.correct(lucky, 0.5)
    search.correct(Candidate("direct", {"lanes": 1}), 1e-9)  # which nobody tried
    assert search.best(1)[0][0].knobs == {"lanes": 8, "chunk": 16}
    assert search.known[lucky.key][1].seconds == 0.5
    assert search.counts == {"ok": 16, "wrong": 8, "illegal": 8}
    assert len(kept.rows) == 32


def test_hints_come_right_after_the_default(scheduled: Any) -> None:
    scheduled(vectors)
    hints = [
        Candidate("direct", {"lanes": 8, "chunk": 64}),
        Candidate("direct", {"lanes": 0, "chunk": 64}),  # refused: no use
        Candidate("direct", {"lanes": 7, "chunk": 64}),  # no longer in the domain
        Candidate("direct", {"lanes": 4, "chunk": 1}),  # the default
        Candidate("direct", {"lanes": 8}),  # a knob that is new has its default
    ]
    tried = explored(Search(space(), Kept(), 0, hints), 3)
    assert [(c.knobs["lanes"], c.knobs["chunk"]) for c in tried] == [
        (4, 1),
        (8, 64),
        (8, 1),
    ]


def test_what_a_schedule_raises_is_a_reason_in_a_line(scheduled: Any) -> None:
    def broken(_: Schedule, knobs: Knobs) -> None:
        if knobs.flag("broken"):
            raise KeyError("a\nb")

    scheduled(broken)
    search = Search(space(), Kept(), 0)
    points = {s.candidate.knobs["broken"]: s.point for s in _all(search)}
    assert points[False].outcome is None
    assert points[True].outcome is not None
    assert points[True].outcome.reason == "its schedule raised KeyError: 'a\\nb'"


def test_a_full_disk_is_no_mistake_of_the_schedule_that_prints(scheduled: Any) -> None:
    def prints(_: Schedule, knobs: Knobs) -> None:
        with Path("/dev/full").open("w") as file:
            print(knobs.flag("loud"), file=file)

    scheduled(prints)
    with pytest.raises(OSError, match="No space left on device"):
        space().default()


def _all(search: Search) -> list[Any]:
    found = []
    for suggestion in search.suggestions():
        found.append(suggestion)
        search.file(suggestion, suggestion.point.outcome or Outcome(OK, "", 1.0))
    return found


def test_knobs_of_one_name_may_differ_between_algorithms(scheduled: Any) -> None:
    del scheduled
    before = dict(copy.algorithms)
    algorithm(copy, "other")(lambda x: compute(x.shape, lambda i: x[i], name="y"))

    @schedule(FAMILY)
    def one(s: Schedule, knobs: Knobs) -> None:
        s.split("i", [None, knobs.choice("n", [2, 4])])

    @schedule(FAMILY, algorithm="other")
    def two(s: Schedule, knobs: Knobs) -> None:
        s.split("i", [None, knobs.choice("n", [8, 16, 32])])
        if knobs.flag("more"):  # a domain that depends on a knob
            s.split("i_1", [None, knobs.choice("m", [2, 4])])
        else:
            s.split("i_0", [None, knobs.choice("m", [2, 4, 8])])

    try:
        kept = Kept()
        search = Search(space(), kept, 0)
        found = _all(search)
        again = Search(space(), kept, 1)
        assert again.known.keys() <= search.known.keys()
    finally:
        copy.algorithms.clear()
        copy.algorithms.update(before)
    algorithms = {s.candidate.algorithm for s in found}
    assert algorithms == {"direct", "other"}
    assert {s.candidate.knobs["n"] for s in found} == {2, 4, 8, 16, 32}


def test_every_point_of_a_space_whose_knobs_depend_on_others(scheduled: Any) -> None:
    def nested(s: Schedule, knobs: Knobs) -> None:
        if knobs.flag("split"):
            _, inner = s.split("i", [None, knobs.integer("n", 2, 8, step=2)])
            if knobs.choice("how", ["plain", "vectors"]) == "vectors":
                s.vectorize(inner)

    scheduled(nested)
    points = [point.candidate.knobs for point in space().every()]
    assert points[0] == {"split": False}
    pairs = [(n, how) for n in (2, 4, 6, 8) for how in ("plain", "vectors")]
    assert [(p["n"], p["how"]) for p in points[1:]] == pairs
    search = Search(space(), Kept(), 0)
    assert len(explored_by(search)) == 9
    assert search.exhausted


def explored_by(search: Search) -> list[str]:
    """The code of all points that are suggested."""
    return [suggestion.point.ir for suggestion in _all(search)]


def test_a_repeated_suggestion_looks_at_the_clock(scheduled: Any) -> None:
    """Where most points are of one code, suggestions repeat."""

    def idle(s: Schedule, knobs: Knobs) -> None:
        knobs.integer("idle", 1, 100_000)
        s.parallel("i")

    scheduled(idle)
    search, looks = Search(space(), Kept(), 0), 0

    def over() -> bool:
        nonlocal looks
        looks += 1
        return looks > 10

    tried = []
    for suggestion in search.suggestions(over):
        tried.append(suggestion.candidate)
        search.file(suggestion, Outcome(OK, "", 1.0))
    assert len(tried) == 1
    assert looks == 11
    assert not search.exhausted


def test_a_time_that_is_up_leaves_the_default(scheduled: Any) -> None:
    scheduled(vectors)
    hints = [Candidate("direct", {"lanes": 8, "chunk": 64})]
    search = Search(space(), Kept(), 0, hints)
    tried = [s.candidate.knobs for s in search.suggestions(lambda: True)]
    assert tried == [{"lanes": 4, "chunk": 1}]


def test_code_that_is_too_long_is_refused_before_it_is_built(scheduled: Any) -> None:
    def unrolled(s: Schedule, knobs: Knobs) -> None:
        times = knobs.choice("times", [8, 256])
        _, outer, inner = s.split("i", [None, times, times])
        s.unroll(outer)
        s.unroll(inner)

    scheduled(unrolled)
    made = space()
    made.workload = copy.workload((1 << 18,), dtypes="f32")
    assert made.given(Candidate("direct", {"times": 8})).outcome is None
    refused = made.given(Candidate("direct", {"times": 256})).outcome
    assert refused is not None
    assert refused.status == ILLEGAL
    assert "vector operations, more than" in refused.reason


def test_a_space_without_a_choice_says_why(scheduled: Any) -> None:
    scheduled(lambda s, _: s.parallel("i"))
    single = space()
    single.default()
    assert single.size == 1
    assert "leaves nothing to choose" in space_note(single, ["a schedule"])
    assert "has no schedule for llvm" in space_note(single, [])


def test_thousands_of_rows_do_not_slow_a_resumed_search(scheduled: Any) -> None:
    """The sampler is told the fastest and the latest; all rows answer."""

    def large(s: Schedule, knobs: Knobs) -> None:
        s.split("i", [None, knobs.integer("n", 1, 4000)])

    scheduled(large)
    kept, made = Kept(), space()
    point = made.default()
    for n in range(1, 3001):
        candidate = Candidate("direct", {"n": n})
        there = dataclasses.replace(point, candidate=candidate)
        outcome = Outcome(OK, "", 1.0 + abs(n - 700), ir=f"code {n}")
        kept.rows.append(Row.of(candidate, outcome, made.parameters(there)))
    search = Search(made, kept, 0)
    assert len(search.known) == 3000
    told = search._study.get_trials(deepcopy=False)
    assert len(told) == 512
    assert min(trial.value for trial in told) == 1.0


class Built(Builders):
    """Builders that only note what they are to build."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count, self.begun = count, []

    def begin(self, candidate: Candidate) -> None:
        self.begun.append(candidate.key)


@pytest.mark.parametrize("count", [1, 3, 8])
def test_what_is_suggested_next_is_being_built(scheduled: Any, count: int) -> None:
    scheduled(vectors)
    built = Built(count)
    search = Search(space(), Kept(), 0, builders=built)
    tried = []
    for suggestion in search.suggestions():
        key = suggestion.candidate.key
        tried.append(key)
        known = suggestion.point.outcome
        if len(tried) > 1 and known is None:  # but the default
            assert key in built.begun
        search.file(suggestion, known or outcome_of(suggestion.candidate))
    assert len(tried) == len(set(tried)) == 32
    assert search.exhausted
    assert len(set(built.begun)) <= 24  # what is not refused
