"""The finals: only a real win replaces what is used now; a crash loses no run."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf, log
from random import Random
from typing import Any

from tensorlang.tuner.measurement.rounds import paired_ratio
from tensorlang.tuner.search import finals
from tensorlang.tuner.search.finals import (
    Entrant,
    beside,
    champion,
    rounds_within,
    run,
    seconds_for,
)
from tensorlang.tuner.workers.process import Died, Silent
from tensorlang.tuner.workers.protocol import Candidate

NOISE = (1.0, 1.02, 0.98, 1.01, 0.99, 1.03, 0.97, 1.0, 1.01, 0.99, 1.02)


def entrant(name: str, seconds: float = 1e-3) -> Entrant:
    return Entrant(Candidate("direct", {"name": name}), seconds)


class FakeWorker:
    """Times each by its own figure; dies, hangs or refuses for some names."""

    measured = "here"
    disturbed = False

    def __init__(self, **behaviour: str) -> None:
        self.behaviour = behaviour
        self.heats: list[list[str]] = []

    def finals(
        self, candidates: Sequence[Candidate], rounds: int, *_: float, **__: bool
    ) -> Any:
        names = [str(c.knobs["name"]) for c in candidates]
        self.heats.append(names)
        doing = {self.behaviour.get(name, "") for name in names}
        if "dies" in doing:
            raise Died("killed by SIGSEGV while being timed")
        if "hangs" in doing:
            raise Silent("no answer in time")
        right = [n for n in names if self.behaviour.get(n) != "is wrong"]
        failed = {
            c.key: "wrong now" for c in candidates if c.knobs["name"] not in right
        }
        samples = {c.key: [1.0] * rounds for c in candidates if c.key not in failed}
        return samples, failed


def names(result: finals.Finals) -> set[str]:
    return {key.split('"')[-2] for key in result.samples}


def test_all_are_timed_together() -> None:
    worker = FakeWorker()
    result = run(
        worker, [entrant("default")], [entrant("a"), entrant("b")], lambda: inf
    )
    assert names(result) == {"default", "a", "b"}
    assert worker.heats == [["default", "a", "b"]]


def test_a_crash_is_retried_without_the_crasher() -> None:
    worker = FakeWorker(a="dies")
    result = run(
        worker, [entrant("default")], [entrant("a"), entrant("b")], lambda: inf
    )
    assert worker.heats == [["default", "a", "b"], ["default", "a"], ["default", "b"]]
    assert names(result) == {"default", "b"}
    ((crasher, outcome),) = result.failed
    assert crasher.knobs["name"] == "a"
    assert outcome.status == "crashed"
    assert "in the finals" in outcome.reason


def test_all_crash_and_what_is_used_now_is_still_compared() -> None:
    worker = FakeWorker(a="dies", b="hangs")
    base = [entrant("default"), entrant("incumbent")]
    result = run(worker, base, [entrant("a"), entrant("b")], lambda: inf)
    assert names(result) == {"default", "incumbent"}
    assert [outcome.status for _, outcome in result.failed] == ["crashed", "hung"]


def test_a_record_that_crashes_is_to_blame_and_no_challenger() -> None:
    for behaviour in ("dies", "hangs"):
        worker = FakeWorker(incumbent=behaviour, b="dies")
        base = [entrant("default"), entrant("incumbent")]
        result = run(worker, base, [entrant("a"), entrant("b")], lambda: inf)
        assert names(result) == {"default", "a"}
        ((crasher, _),) = result.failed
        assert crasher.knobs["name"] == "incumbent"


def test_a_default_that_crashes_alone_is_to_blame_and_not_the_record() -> None:
    worker = FakeWorker(default="dies")
    base = [entrant("default"), entrant("incumbent")]
    result = run(worker, base, [entrant("a")], lambda: inf)
    assert worker.heats[1:] == [["default", "incumbent"], ["default"]]
    assert not result.samples
    assert [c.knobs["name"] for c, _ in result.failed] == ["default"]


def test_what_is_no_longer_right_is_told_and_not_timed() -> None:
    worker = FakeWorker(a="is wrong")
    result = run(
        worker, [entrant("default")], [entrant("a"), entrant("b")], lambda: inf
    )
    assert names(result) == {"default", "b"}
    assert [outcome.reason for _, outcome in result.failed] == ["wrong now"]


def test_nothing_is_timed_where_there_is_no_time() -> None:
    worker = FakeWorker()
    result = run(worker, [entrant("default")], [entrant("a")], lambda: 0.01)
    assert worker.heats == []
    assert result.samples == {}
    assert run(worker, [entrant("default")], [], lambda: inf).samples == {}


def test_who_takes_too_long_is_left_out() -> None:
    worker = FakeWorker()
    others = [entrant("a"), entrant("b", 1.0), entrant("c", 2.0)]
    result = run(worker, [entrant("default")], others, lambda: 3.0)
    assert names(result) == {"default", "a"}
    assert worker.heats == [["default", "a"]]


def test_rounds_fit_into_the_time_that_is_left() -> None:
    both = [entrant("default", 0.1), entrant("a", 0.05)]
    assert rounds_within(both, inf) == finals.MOST_ROUNDS
    for left in (1.5, 2.0, 3.0):
        rounds = rounds_within(both, left)
        assert rounds == 0 or seconds_for(both, rounds) < left
    assert rounds_within(both, 3.0) > rounds_within(both, 2.0) >= finals.FEWEST_ROUNDS
    assert rounds_within(both, 0.5) == 0  # too few for an interval


def around(seconds: float, shift: int = 0) -> list[float]:
    return [seconds * noise for noise in NOISE[shift:] + NOISE[:shift]]


def test_the_best_so_far_is_timed_beside_the_default() -> None:
    pair = entrant("default"), entrant("a")
    worker = FakeWorker()
    found = beside(worker, *pair, inf)  # type: ignore[arg-type]
    assert list(found.values()) == [[1.0] * 7] * 2
    assert worker.heats == [["default", "a"]]
    assert beside(worker, *pair, 0.001) == {}  # type: ignore[arg-type]
    for behaviour in ("dies", "hangs"):
        assert beside(FakeWorker(a=behaviour), *pair, inf) == {}  # type: ignore[arg-type]


def test_only_a_win_beyond_the_noise_replaces_the_default() -> None:
    base = around(1.0)
    assert champion({"d": base, "a": around(0.99, 3)}, "d", None) == "d"
    assert champion({"d": base, "a": around(0.8, 3)}, "d", None) == "a"
    fastest = {"d": base, "a": around(0.8, 3), "b": around(0.7, 5)}
    assert champion(fastest, "d", None) == "b"
    assert champion({"d": base}, "d", None) == "d"


def test_an_incumbent_stays_until_it_is_really_beaten() -> None:
    samples = {"d": around(1.0), "i": around(0.5), "a": around(0.495, 3)}
    assert champion(samples, "d", "i") == "i"
    samples["a"] = around(0.4, 3)
    assert champion(samples, "d", "i") == "a"


def test_an_incumbent_that_is_behind_the_default_gives_way() -> None:
    assert champion({"d": around(1.0), "i": around(1.3, 3)}, "d", "i") == "d"
    assert champion({"d": [1.0] * 9, "i": [1.001] * 9}, "d", "i") == "d"
    behind = {"d": around(1.0), "i": around(1.3, 3), "a": around(1.1, 2)}
    assert champion(behind, "d", "i") == "d"


def test_an_incumbent_that_could_not_be_timed_is_not_chosen() -> None:
    assert champion({"d": around(1.0)}, "d", "i") == "d"


class TwoProcesses(FakeWorker):
    """Times in a first process, and in the one that is started after `stop`."""

    def __init__(self, first: dict[str, float], second: dict[str, float]) -> None:
        super().__init__()
        self.times = [first, second]

    def stop(self) -> None:
        self.times = self.times[1:] or self.times

    def finals(
        self, candidates: Sequence[Candidate], rounds: int, *_: float, **__: bool
    ) -> Any:
        chosen = {c.key: self.times[0][str(c.knobs["name"])] for c in candidates}
        self.heats.append([str(c.knobs["name"]) for c in candidates])
        return {key: [time] * rounds for key, time in chosen.items()}, {}


def confirmed(
    worker: FakeWorker, *challengers: str, left: float = inf
) -> tuple[str, str]:
    """The champion, and why another is not trusted."""
    base, others = [entrant("default")], [entrant(name) for name in challengers]
    result = run(worker, base, others, lambda: inf)  # type: ignore[arg-type]
    doubt = finals.confirm(worker, base, others, result, lambda: left)  # type: ignore[arg-type]
    best = champion(result.samples, base[0].key, None)
    return best.split('"')[-2], doubt


def test_a_winner_wins_in_another_process_too() -> None:
    times = {"default": 2.0, "a": 1.0, "b": 1.5}
    worker = TwoProcesses(times, times)
    assert confirmed(worker, "a", "b") == ("a", "")
    assert worker.heats == [["default", "a", "b"], ["default", "a"]]


def test_a_winner_of_one_process_is_not_trusted_and_the_next_has_its_chance() -> None:
    first = {"default": 2.0, "a": 1.0, "b": 1.5}
    worker = TwoProcesses(first, {**first, "a": 2.5})
    best, doubt = confirmed(worker, "a", "b")
    assert best == "b"
    assert "direct(name=a) was faster in one process, not in another" in doubt
    worker = TwoProcesses(first, {"default": 1.0, "a": 1.0, "b": 1.0})
    assert confirmed(worker, "a", "b")[0] == "default"


class Beside(TwoProcesses):
    """Other programs run meanwhile, and favour the challenger in some processes."""

    disturbed = True

    def __init__(self, *lucky: bool) -> None:
        super().__init__({}, {})
        self.times = [{"default": 2.0, "a": 1.0 if luck else 2.5} for luck in lucky]
        self.checked: list[bool] = []

    def finals(
        self, candidates: Sequence[Candidate], rounds: int, *_: float, **how: bool
    ) -> Any:
        self.checked.append(how["checked"])
        return super().finals(candidates, rounds)


def test_beside_other_programs_a_winner_wins_in_five_more_processes() -> None:
    worker = Beside(*[True] * 6)
    assert confirmed(worker, "a") == ("a", "")
    assert len(worker.heats) == 6
    assert worker.checked == [False, False, *[True] * 4]  # again, but once
    for lucky in range(1, 6):
        worker = Beside(*[True] * lucky, False)
        best, doubt = confirmed(worker, "a")
        assert best == "default"
        assert "faster in one process, not in another" in doubt
        assert len(worker.heats) == lucky + 1


class Noisy(Beside):
    """Each round is noisy; the challenger is ahead in most of a process, or few."""

    def __init__(self, *ahead: float) -> None:
        super().__init__(*[True] * len(ahead))
        self.ahead = list(ahead)

    def stop(self) -> None:
        self.ahead = self.ahead[1:]

    def finals(
        self, candidates: Sequence[Candidate], rounds: int, *_: float, **__: bool
    ) -> Any:
        self.heats.append([str(c.knobs["name"]) for c in candidates])
        won = round(self.ahead[0] * rounds)
        times = {"default": [1.0] * rounds, "a": [0.9] * won + [3.0] * (rounds - won)}
        return {c.key: times[str(c.knobs["name"])] for c in candidates}, {}


def test_beside_other_programs_most_rounds_of_each_process_are_enough() -> None:
    assert confirmed(Noisy(0.8, *[0.64] * 5), "a") == ("a", "")


def test_beside_other_programs_all_rounds_together_exclude_noise() -> None:
    best, doubt = confirmed(Noisy(0.8, *[0.52] * 5), "a")
    assert best == "default"
    assert "faster in one process, not in another" in doubt


def test_a_default_that_is_wrong_in_another_process_is_told() -> None:
    class Wrong(TwoProcesses):
        def stop(self) -> None:
            super().stop()
            self.behaviour = {"default": "is wrong"}

        def finals(self, candidates: Sequence[Candidate], *_: float, **__: bool) -> Any:
            samples, _ = super().finals(candidates, 9)
            failed = {
                c.key: "wrong now"
                for c in candidates
                if self.behaviour.get(str(c.knobs["name"]))
            }
            return {k: v for k, v in samples.items() if k not in failed}, failed

    times = {"default": 2.0, "a": 1.0}
    worker, base = Wrong(times, times), [entrant("default")]
    result = run(worker, base, [entrant("a")], lambda: inf)  # type: ignore[arg-type]
    finals.confirm(worker, base, [entrant("a")], result, lambda: inf)  # type: ignore[arg-type]
    assert [c.knobs["name"] for c, _ in result.failed] == ["default"]
    assert champion(result.samples, base[0].key, None) == base[0].key
    assert champion({entrant("a").key: [1.0] * 9}, base[0].key, None) == base[0].key


def test_samples_of_all_processes_count() -> None:
    base, others = [entrant("default")], [entrant("a")]
    worker = Beside(*[True] * 6)
    result = run(worker, base, others, lambda: inf)  # type: ignore[arg-type]
    finals.confirm(worker, base, others, result, lambda: inf)  # type: ignore[arg-type]
    assert result.disturbed
    assert {len(samples) for samples in result.samples.values()} == {
        6 * finals.MOST_ROUNDS
    }


class Loaded(FakeWorker):
    """Each process favours some candidates by a third, all of its rounds alike."""

    def __init__(self, gains: dict[str, float], dice: Random) -> None:
        super().__init__()
        self.gains, self.dice = gains, dice
        self.disturbed = True
        self.stop()

    def stop(self) -> None:
        self.luck = {name: self.dice.gauss(0, 0.25) for name in self.gains}

    def finals(
        self, candidates: Sequence[Candidate], rounds: int, *_: float, **__: bool
    ) -> Any:
        samples = {}
        for each in candidates:
            name = str(each.knobs["name"])
            level = self.luck[name] - self.gains[name]
            noise = [self.dice.gauss(0, 0.2) for _ in range(rounds)]
            samples[each.key] = [exp(level + part) for part in noise]
        return samples, {}


def searched(gains: dict[str, float], dice: Random) -> tuple[bool, bool]:
    """Whether a search beside other programs has a winner; if later runs deny it."""
    worker = Loaded({"default": 0.0, **gains}, dice)
    best, _ = confirmed(worker, *gains)
    if best == "default":
        return False, False
    slower = 0
    pair = [entrant("default"), entrant(best)]
    for _ in range(8):
        worker.stop()
        samples, _ = worker.finals([each.candidate for each in pair], 25)
        times = [samples[each.key] for each in pair]
        slower += paired_ratio(*times).median < 1
    return True, slower >= 7


def test_beside_other_programs_later_runs_deny_no_win_and_real_ones_are_seen() -> None:
    dice = Random(0)
    alike = [
        searched({name: dice.gauss(0, 0.1) for name in "abcde"}, dice)
        for _ in range(100)
    ]
    assert sum(denied for _, denied in alike) == 0
    assert sum(won for won, _ in alike) <= 20
    twice = [searched(dict.fromkeys("abcde", log(2)), dice) for _ in range(50)]
    assert sum(won for won, _ in twice) >= 48
    assert sum(denied for _, denied in twice) == 0


def test_a_default_that_wins_needs_no_second_process() -> None:
    worker = TwoProcesses({"default": 1.0, "a": 2.0}, {})
    assert confirmed(worker, "a") == ("default", "")
    assert len(worker.heats) == 1


def test_without_time_for_a_second_process_nothing_wins_and_it_is_said() -> None:
    times = {"default": 2.0, "a": 1.0, "b": 1.5}
    best, doubt = confirmed(TwoProcesses(times, times), "a", "b", left=0.0)
    assert best == "default"
    assert doubt == (
        "direct(name=a) was faster in one process, and there was no time to confirm it "
        "in another: run it again"
    )
