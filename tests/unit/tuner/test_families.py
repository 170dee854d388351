"""A family within a budget: the dearest member first, and later runs go on."""

from __future__ import annotations

import time
import types

import pytest

from tensorlang import targets
from tensorlang.errors import TuningError
from tensorlang.ops import select
from tensorlang.tuner import tuning
from tensorlang.tuner.limits.roofline import least
from tensorlang.tuner.progress import Report
from tensorlang.tuner.storage.rows import Row
from tensorlang.tuner.storage.storage import Trials
from tensorlang.tuner.storage.studies import ENOUGH, Reached, Study, by_name
from tensorlang.tuner.tuning import tune
from tensorlang.tuner.tuning_run import Run
from tensorlang.tuner.workers.protocol import OK, Candidate, Outcome

FAMILY = "threefry"
MEMBERS = len(select(FAMILY))


class Fake:
    """Stands for the tuning of a member, which takes its whole share of the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.wrong: set[str] = set()
        self.tuned: list[tuple[str, float | None, float]] = []
        self.studies: dict[str, Study] = {}
        self.without = ENOUGH  # trials without a win, after which a run ends
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(tuning, "_tuned", self.tune)
        monkeypatch.setattr(tuning, "by_name", lambda _: self.studies)

    def tune(self, run: Run, *_: object) -> Report:
        if run.op.id in self.wrong:
            raise TuningError(f"the default of {run.op.id} is itself wrong")
        estimate = least(run.op, run.workload, run.target)
        self.tuned.append((run.op.id, run.budget, estimate))
        study = self.studies.get(run.study)
        trials = self.without + (study.finished if study else 0)
        self.put(run.study, estimate, trials, Reached(whole=False, won=0))
        self.now += run.budget or 1.0
        best = Candidate("direct", {})
        return Report(
            run.op.id, run.workload, "here", 1.0, best, 1.0, 0.0, None, 1, {}, {}
        )

    def put(self, name: str, seconds: float, trials: int, reached: Reached) -> None:
        self.studies[name] = Study(0, name, None, trials, 0, seconds, None, reached)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    return Fake(monkeypatch)


def test_a_budget_is_for_as_many_members_as_it_is_enough_for(fake: Fake) -> None:
    reports = tune(FAMILY, budget=60.0)
    assert [budget for _, budget, _ in fake.tuned] == [10.0] * 6
    assert [report.note for report in reports[:-1]] == [""] * 5
    assert "later runs go on with them" in reports[-1].note
    sizes = [size for *_, size in fake.tuned]
    assert sizes == sorted(sizes, reverse=True)


def test_a_later_run_goes_on_with_the_next_when_the_dearest_are_done(
    fake: Fake,
) -> None:
    for _ in range(4):
        tune(FAMILY, budget=60.0)
    names = [name for name, *_ in fake.tuned]
    assert len(set(names[:MEMBERS])) == MEMBERS
    assert names[MEMBERS:] == names[: 24 - MEMBERS]  # those that are done, in turn


def test_a_run_goes_on_with_the_dearest_until_it_is_done(fake: Fake) -> None:
    fake.without = ENOUGH // 2
    for _ in range(4):
        tune(FAMILY, budget=20.0)
    names = [name for name, *_ in fake.tuned]
    assert names[:2] == names[2:4] == names[4:6]
    assert not {*names[:2]} & {*names[6:]}


def test_known_times_count_more_than_estimates_and_whole_spaces_are_last(
    fake: Fake,
) -> None:
    tune(FAMILY, budget=None, trials=5)
    *_, dear, whole = fake.tuned
    for name in list(fake.studies):
        fake.put(name, 1e-9, 10, Reached(whole=False, won=0))
        if name.startswith(f"{dear[0]}("):
            fake.put(name, 1.0, 10, Reached(whole=False, won=0))
        if name.startswith(f"{whole[0]}("):
            fake.put(name, 2.0, 10, Reached(whole=True, won=0))
    fake.tuned.clear()
    tune(FAMILY, budget=None, trials=5)
    assert fake.tuned[0] == dear
    assert fake.tuned[-1] == whole


def test_a_study_says_how_far_it_is(tmp_path: object) -> None:
    url = f"sqlite:///{tmp_path}/trials.db"
    trials = Trials(url, "study")

    def told(count: int) -> int:
        for number in range(count):
            candidate = Candidate("direct", {"at": number})
            trials.add(Row.of(candidate, Outcome(OK, seconds=1.0), {}))
        return by_name(url)["study"].done

    assert told(ENOUGH) == 0  # no run came to its end
    trials.reach(whole=False, won=True)
    assert told(ENOUGH - 1) == 0
    trials.reach(whole=False, won=False)
    assert told(1) == 1
    trials.reach(whole=False, won=True)
    assert told(0) == 0
    trials.reach(whole=True, won=False)
    assert told(0) == 2
    trials.close()


def test_a_large_budget_is_shared_and_a_tiny_one_is_the_first_s(fake: Fake) -> None:
    tune(FAMILY, budget=20.0 * MEMBERS)
    assert [budget for _, budget, _ in fake.tuned] == [20.0] * MEMBERS
    fake.tuned.clear()
    tune(FAMILY, budget=3.0)
    assert [budget for _, budget, _ in fake.tuned] == [3.0]


def test_a_member_that_cannot_be_tuned_is_skipped_and_said(fake: Fake) -> None:
    fake.wrong = {"random.bits"}
    reports = tune(FAMILY, budget=None, trials=5)
    assert len(reports) == MEMBERS - 1
    assert reports[-1].note == (
        "random.bits was skipped: the default of random.bits is itself wrong"
    )
    fake.wrong = {member.id for member in select(FAMILY)}
    with pytest.raises(TuningError, match=r"random\.bits was skipped"):
        tune(FAMILY, budget=None, trials=5)
    with pytest.raises(TuningError, match=r"^the default of random\.bits"):
        tune("random.bits", budget=None, trials=5)


def test_a_member_may_take_what_is_left_until_there_is_something_to_compare() -> None:
    op = select("random.bits")[0]
    run = Run(op, op.workload((64,), threads=1), targets.host())
    run.begin((1, 6), 10.0, 60.0)
    search = types.SimpleNamespace(known={})
    default = Candidate("direct", {})
    assert 20.0 < run._left(search, default) <= 60.0  # type: ignore[arg-type]
    search.known = dict.fromkeys("ab", (default, Outcome(OK, seconds=1e-6)))
    search.known[default.key] = default, Outcome(OK, seconds=1e-6)
    assert run._left(search, default) <= 10.0  # type: ignore[arg-type]
    assert 50.0 < run._until_the_end()() <= 60.0


def test_without_a_budget_all_members_are_tuned(fake: Fake) -> None:
    tune(FAMILY, budget=None, trials=5)
    assert [budget for _, budget, _ in fake.tuned] == [None] * MEMBERS


def test_members_are_counted_in_the_storage(tmp_path: object) -> None:
    url = f"sqlite:///{tmp_path}/trials.db"
    assert by_name(url) == {}
    Trials(url, "study").close()
    assert [(name, each.finished) for name, each in by_name(url).items()] == [
        ("study", 0)
    ]
