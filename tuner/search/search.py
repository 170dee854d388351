"""The search: Optuna suggests, schedules prune, known rows answer.

Configurations are identified by the hash of their scheduled IR: code that was measured
before, in this or an earlier run or with other knobs, is not measured again; a row
whose knobs now produce other code is. What other tuners of the study told is known
before each suggestion, and what they are measuring is left to them; so is their share
while the storage is away.
"""

from __future__ import annotations

import random
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tensorlang import lazy
from tensorlang.tuner.search.space import Point, Space
from tensorlang.tuner.storage import claimants
from tensorlang.tuner.storage.rows import Row
from tensorlang.tuner.storage.storage import Trials
from tensorlang.tuner.workers.builders import Builders
from tensorlang.tuner.workers.protocol import LOST, WRONG, Candidate, Outcome

with lazy.modules(__name__):  # slow to import
    import optuna

    from tensorlang.tuner.search import sampler

if TYPE_CHECKING:
    from tensorlang.tuner.search.sampler import ModelSampler

_REPEATS: Final = 64  # consecutive suggestions without anything new
_SMALL: Final = 1024  # points of a space whose rest is enumerated
_SMALL_REPEATS: Final = 4  # consecutive suggestions without anything new, before that
_LONGEST_VERDICT: Final = 300
_TOLD: Final = 512  # rows of earlier runs passed to the sampler
_WAIT: Final = 0.5  # seconds for other tuners that measure what is left


@dataclass(slots=True)
class Suggestion:
    """A configuration to try; `trial` is Optuna's, if it suggested it."""

    point: Point
    trial: optuna.Trial | None = None

    @property
    def candidate(self) -> Candidate:
        """The candidate to try."""
        return self.point.candidate


class Search:
    """Suggestions for one space, and the results so far.

    Args:
        space: The search space.
        trials: Trials of all tuners, to which new outcomes are added.
        seed: Suggestions are a function of seed and outcomes.
        hints: Candidates to try right after the default, such as records of similar
            shapes.
        builders: What builds the next suggestions, as many as it has workers.

    Attributes:
        builders: What builds the next suggestions.
        known: The outcomes of configurations tried, by key: of all but the slower ones
            of a large study.
        earlier: The number of those that were tried in earlier runs.
        counts: Outcomes by status.
        reasons: Failures by kind.
    """

    def __init__(
        self,
        space: Space,
        trials: Trials,
        seed: int,
        hints: Sequence[Candidate] = (),
        builders: Builders | None = None,
    ) -> None:
        self.space, self._trials, self._hints = space, trials, hints
        self.builders = builders or Builders()
        self._next: deque[Suggestion] = deque()  # which are being built
        self._repeats = 0  # consecutive suggestions without anything new
        self._sampler, self._study = _study(space, seed)
        self._sampler.share = trials.share
        self._claim = claimants.described()
        self.known: dict[str, tuple[Candidate, Outcome]] = {}
        self._by_code: dict[str, Outcome] = {}
        self._current_keys: set[str] = set()
        self._points: dict[str, Point] = {}
        self._enumerated = False
        self._blind = False
        self._same_code = True  # what was told is of this version of the schedules
        earlier = trials.news()
        for row in earlier:
            self._remember(row.candidate, row.outcome)
        self.earlier = self.tried
        for row in _telling(earlier):
            self._study.add_trial(row.frozen())

    @property
    def tried(self) -> int:
        """The number of configurations tried."""
        return len(self.known) + self._trials.unread

    @property
    def counts(self) -> Counter[str]:
        """Outcomes by status."""
        return Counter(outcome.status for _, outcome in self.known.values())

    @property
    def reasons(self) -> Counter[str]:
        """Failures by kind, with an example of each.

        Reasons that differ only in numbers are of one kind; wrong results are listed
        separately.
        """
        first: dict[str, str] = {}
        found: Counter[str] = Counter()
        for candidate, outcome in self.known.values():
            if outcome.status == WRONG:
                said = " ".join(outcome.reason.split())[:_LONGEST_VERDICT]
                found[f"{WRONG}: {candidate}: {said}"] += 1
            elif not outcome.ok:
                said = f"{outcome.status}: {' '.join(outcome.reason.split())[:160]}"
                found[first.setdefault(f"{outcome.status}: {kind(said)}", said)] += 1
        return found

    @property
    def exhausted(self) -> bool:
        """Whether every configuration of the space was tried."""
        size = self.space.size
        full = size is not None and len(self._current_keys) >= size
        return full or self._enumerated

    def suggestions(
        self, over: Callable[[], bool] = lambda: False
    ) -> Iterator[Suggestion]:
        """Suggestions until the space seems exhausted; `file` each one.

        Args:
            over: Whether the time is up, asked before each schedule that is run; the
                default is suggested all the same.
        """
        default = self.space.default()
        held = self.held(default)
        known = self.known.get(default.candidate.key)
        self._same_code = known is None or known[1].ir == default.ir
        if self._same_code:
            self._current_keys.update(self.known)
        if held is None or not held.ok:
            yield Suggestion(default)
        for candidate in self._hints:
            if over():
                return
            point = self.space.given(candidate)
            if point.outcome is None and self.held(point) is None and self._take(point):
                yield Suggestion(point)
        for suggestion in self._ahead(self._asked(over)):
            if over():
                return
            point, held = suggestion.point, self.held(suggestion.point)
            self._repeats += 1
            if held is not None:  # answered from a known row
                self._answer(point, held)
                self._tell(suggestion, held)
            elif self._take(point):
                self._repeats = 0
                yield suggestion
            else:
                self._tell(suggestion, Outcome(LOST))
        if self._small and not self.exhausted and not over():
            yield from self._rest(over)

    def _asked(self, over: Callable[[], bool]) -> Iterator[Suggestion]:
        """What the sampler suggests, until that is always known."""
        while not over():
            self._listen()
            most = _SMALL_REPEATS if self._small else _REPEATS
            if self.exhausted or self._repeats >= most:
                return
            trial = self._study.ask()
            yield Suggestion(self.space.suggested(trial), trial)

    def _ahead(self, suggestions: Iterable[Suggestion]) -> Iterator[Suggestion]:
        """The suggestions, while those that follow are being built."""
        for each in suggestions:
            if each.point.outcome is None and self.held(each.point) is None:
                self.builders.begin(each.candidate)
            self._next.append(each)
            if len(self._next) > self.builders.count:
                yield self._next.popleft()
        while self._next:
            yield self._next.popleft()

    @property
    def _small(self) -> bool:
        """Whether the space can be enumerated."""
        return self.space.size is not None and self.space.size <= _SMALL

    def _rest(self, over: Callable[[], bool]) -> Iterator[Suggestion]:
        """All points that were not tried yet; those that others measure come last.

        After a long outage, tuners go through the rest in different orders.
        """
        points: Iterable[Point] = self.space.every()
        while True:
            taken = []
            for suggestion in self._ahead(map(Suggestion, points)):
                point = suggestion.point
                if self.held(point) is None and self._take(point):
                    yield suggestion
                    self._listen()
                held = self.held(point)
                if held is not None:
                    self._answer(point, held)
                else:
                    taken.append(point)
                if over():
                    return
            if not taken:
                break
            time.sleep(_WAIT)  # for an outcome, or the end of the claim
            self._listen()
            points = random.sample(taken, len(taken)) if self._trials.trouble else taken
        self._enumerated = True

    def _take(self, point: Point) -> bool:
        """Claim a point; False if another tuner measures it, or has told its outcome.

        A schedule's refusal needs no claim.
        """
        if point.outcome is not None:
            return True
        if self._small and not self._trials.share(point.candidate):
            return False
        outcome = Outcome(LOST, self._claim, ir=point.ir)
        row = Row.of(point.candidate, outcome, self.space.parameters(point))
        taken = self._trials.claim(row)
        if not taken:
            self._listen()
        return taken

    def _listen(self) -> None:
        """Learn what was told, by other tuners too, and what they are measuring."""
        for row in self._trials.news():
            candidate, outcome = row.candidate, row.outcome
            known = self.known.get(candidate.key)
            if known and (known[1].ir, known[1].ok) == (outcome.ir, outcome.ok):
                continue
            self._remember(candidate, outcome)
            self._study.add_trial(row.frozen())
            if self._same_code:
                self._current_keys.add(candidate.key)
        others = [row.candidate for row in self._trials.claimed()]
        self._sampler.pending = [*others, *(each.candidate for each in self._next)]
        if self._trials.blind and not self._blind:
            self._sampler.reseed_rng()  # not to suggest what others with this seed do
        self._blind = self._trials.blind

    def failure(self, candidate: Candidate) -> Outcome | None:
        """The outcome of a configuration whose code was judged, and is not correct."""
        held = self.held(self._point(candidate))
        return None if held is None or held.ok or held.status == LOST else held

    def _answer(self, point: Point, held: Outcome) -> None:
        """Take the outcome of a point from a known row."""
        self._remember(point.candidate, held)
        self._tried(point)

    def held(self, point: Point) -> Outcome | None:
        """The known outcome for the code of a point."""
        known = self.known.get(point.candidate.key)
        if known is not None and known[1].ir == point.ir:
            return known[1]
        return self._by_code.get(point.ir)

    def file(self, suggestion: Suggestion, outcome: Outcome) -> None:
        """Record an outcome, here and in the storage."""
        self.learn(suggestion, outcome)
        self.store()

    def store(self) -> None:
        """Put what was learned into the storage."""
        self._trials.deliver()

    def learn(self, suggestion: Suggestion, outcome: Outcome) -> None:
        """Take account of an outcome; `store` puts it into the storage."""
        row = self._filed(suggestion.point, outcome)
        if suggestion.trial is None:
            self._study.add_trial(row.frozen())
        else:
            self._tell(suggestion, row.outcome)

    def revoke(self, candidate: Candidate, outcome: Outcome) -> None:
        """Record that a configuration turned out wrong."""
        self._filed(self._point(candidate), outcome)
        self.store()

    def correct(self, candidate: Candidate, seconds: float) -> None:
        """Replace the time of a configuration by one measured side by side with others.

        A lucky time would otherwise lead the search to the end. Stored is what a trial
        took: a later run compares again.
        """
        if candidate.key in self.known:
            known = self.known[candidate.key][1]
            self._remember(candidate, replace(known, seconds=seconds))

    def best(self, count: int) -> list[tuple[Candidate, Outcome]]:
        """The fastest correct configurations, at most `count`, one per code."""
        right = [entry for entry in self.known.values() if entry[1].ok]
        chosen: dict[str, tuple[Candidate, Outcome]] = {}
        for candidate, outcome in sorted(right, key=lambda entry: entry[1].seconds):
            if len(chosen) == count:
                break
            if outcome.ir not in chosen and self._current(candidate, outcome):
                chosen[outcome.ir] = candidate, outcome
        return list(chosen.values())

    def fastest(self) -> float | None:
        """The best time of a correct configuration."""
        times = [outcome.seconds for _, outcome in self.known.values() if outcome.ok]
        return min(times, default=None)

    def _current(self, candidate: Candidate, outcome: Outcome) -> bool:
        """Whether a row's knobs still produce the code that was measured."""
        return self._point(candidate).ir == outcome.ir

    def _point(self, candidate: Candidate) -> Point:
        """The scheduled configuration, which is scheduled once."""
        point = self._points.get(candidate.key)
        if point is None:
            point = self.space.given(candidate)
            if not point.lost:
                self._points[candidate.key] = point
        return point

    def _tried(self, point: Point) -> None:
        key = point.candidate.key
        self._current_keys.add(key)
        if not point.lost:
            self._points[key] = point

    def _filed(self, point: Point, outcome: Outcome) -> Row:
        outcome = replace(outcome, ir=point.ir)
        self._remember(point.candidate, outcome)
        self._tried(point)
        row = Row.of(point.candidate, outcome, self.space.parameters(point))
        if outcome.status != LOST:
            self._trials.hold(row)
        return row

    def _remember(self, candidate: Candidate, outcome: Outcome) -> None:
        self.known[candidate.key] = candidate, outcome
        if outcome.status != LOST:
            self._sampler.learn(candidate, outcome)
        if outcome.ir:
            self._by_code[outcome.ir] = outcome

    def _tell(self, suggestion: Suggestion, outcome: Outcome) -> None:
        if outcome.ok:
            self._study.tell(suggestion.trial, outcome.seconds)
        else:
            states = optuna.trial.TrialState
            state = states.FAIL if outcome.status == LOST else states.PRUNED
            self._study.tell(suggestion.trial, state=state)  # samplers pass over FAIL


def _study(space: Space, seed: int) -> tuple[ModelSampler, optuna.Study]:
    """An in-memory study; finished trials are persisted separately."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        found = sampler.ModelSampler(space, seed)
    return found, optuna.create_study(sampler=found, direction="minimize")


def _telling(rows: list[Row]) -> list[Row]:
    """The rows that best guide a sampler: the fastest and the latest."""
    if len(rows) <= _TOLD:
        return rows
    recent = rows[-_TOLD // 2 :]
    right = [row for row in rows[: -_TOLD // 2] if row.outcome.ok]
    right.sort(key=lambda row: row.outcome.seconds)
    return [*right[: _TOLD // 2], *recent]


def kind(reason: str) -> str:
    """A reason without its numbers, to group failures."""
    words = ("N" if any(c.isdigit() for c in word) else word for word in reason.split())
    return " ".join(words)[:160]
