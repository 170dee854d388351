"""A tuning run of one operator and workload: exploration, finals, verdict."""

from __future__ import annotations

import logging
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from statistics import median
from typing import Final

from tensorlang.errors import ArgumentError, TuningError
from tensorlang.ops.operator import Operator
from tensorlang.targets import Target
from tensorlang.tuner.progress import Listener, Progress
from tensorlang.tuner.search import finals
from tensorlang.tuner.search.finals import Entrant, Finals
from tensorlang.tuner.search.search import Search, Suggestion
from tensorlang.tuner.search.space import Space
from tensorlang.tuner.workers import builders
from tensorlang.tuner.workers.builders import Builders
from tensorlang.tuner.workers.client import Worker
from tensorlang.tuner.workers.process import Late
from tensorlang.tuner.workers.protocol import (
    CHECKS,
    CRASHED,
    FAILED,
    LOST,
    OK,
    UNCOUNTED,
    Candidate,
    Outcome,
)
from tensorlang.version import __version__
from tensorlang.workload import Workload

_LOG: Final = logging.getLogger(__name__)
_FINALISTS: Final = 5
_FINALS_SHARE: Final = 0.5  # maximum fraction of the budget
_AFTERWARDS: Final = 0.6  # seconds for measuring machine limits and writing records
_AFTER_INTERRUPT: Final = 10.0  # seconds for finals after Ctrl-C
_PATIENCE: Final = 20  # multiple of the usual time of a candidate
_LEAST_PATIENCE: Final = 5.0
_FIRST_COMPARISON: Final = 2  # correct configurations
_MOST_LOST: Final = 3  # candidates in succession, before the search is given up


@dataclass(slots=True)
class Run:
    """A tuning run in progress."""

    op: Operator
    workload: Workload  # workload, with the target's threads
    target: Target  # machine
    budget: float | None = None  # seconds in total; None for no limit
    # number of configurations, including earlier ones; None for no limit
    trials: int | None = None
    limit: float = 30.0  # seconds per candidate
    place: tuple[int, int] = (1, 1)  # index and number of operators in the command
    listen: Listener | None = None  # called after each trial
    incumbent: Entrant | None = None  # current record's configuration and time
    # IR hashes of stale records of this workload
    stale: list[str] = field(default_factory=list)
    # candidates of its unverified records, by IR hash
    merged: dict[str, Candidate] = field(default_factory=dict)
    # seconds by stage
    spent: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    interrupted: bool = False  # whether Ctrl-C ended the exploration
    static: bool = False  # whether candidates are only compiled and estimated
    log: Path | None = None  # file for the output of workers, tracebacks included
    # seconds that it may take if `budget`, its share of them, is not enough to compare
    # one candidate with the default
    whole: float | None = None
    trouble: str = ""  # what went wrong around the run, in a sentence; else empty
    doubt: str = ""  # why a faster configuration is not trusted, likewise
    _begun: float = field(default_factory=time.monotonic)
    _usual: float = 0.0  # maximum busy seconds of correct candidates
    _starting: float = 0.0  # seconds that a worker takes to start
    _early: finals.Samples = field(default_factory=dict)  # of the last comparison
    _next_comparison: int = _FIRST_COMPARISON  # correct configurations
    _disturbed: bool = False  # by other programs, in a comparison
    _untold: list[tuple[Candidate, Outcome]] = field(default_factory=list)

    def begin(
        self, place: tuple[int, int], budget: float | None, whole: float | None
    ) -> None:
        """Start the clock."""
        self.place, self.budget, self.whole = place, budget, whole
        self._begun = time.monotonic()

    @property
    def study(self) -> str:
        """The study shared by equal runs with the same revision of the checks."""
        machine = f"{self.target.fingerprint}, {self.workload.threads} threads"
        how = ", by static cost" if self.static else ""
        by = f"tensorlang {__version__}, checks {CHECKS}"
        return f"{self.workload} on {machine}{how}, {by}"

    @property
    def elapsed(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._begun

    def worker(self, log: Path | None = None) -> Worker:
        """A worker for this operator, which it imports by name.

        Args:
            log: File for the output of its processes.

        Raises:
            ArgumentError: it is defined in the main script.
        """
        name = self.op.id
        if self.op.module == "__main__":
            raise ArgumentError(
                f"{name} is defined in the main script, which the tuner's worker "
                "cannot import; put it in a module of its own"
            )
        if not self.op.in_library:
            name = f"{self.op.module}:{self._attribute()}"
        return Worker(
            name,
            self.workload,
            self.target.name,
            static=self.static,
            log=log,
            limit=self.limit,
        )

    def builders(self) -> Builders:
        """What builds candidates beside the measuring."""
        count = builders.spare(self.target, static=self.static)
        return Builders([self.worker() for _ in range(count)], self.limit)

    def _attribute(self) -> str:
        """The operator's name in its module."""
        held = vars(sys.modules[self.op.module])
        for name, value in held.items():
            if value is self.op:
                return name
        raise ArgumentError(
            f"{self.op.id} is not an attribute of its module {self.op.module}, so the "
            "tuner's worker cannot import it; give it a name there"
        )

    def measure(self, search: Search, worker: Worker, default: Candidate) -> Finals:
        """Explore, then run the finals; Ctrl-C ends the exploration, then the finals.

        Raises:
            TuningError: the default is wrong.
            KeyboardInterrupt: there is nothing to report yet.
        """
        worker.deadline = self.ends
        try:
            self._explore(search, worker, default)
        except KeyboardInterrupt:
            self.interrupted = True
            worker.stop()  # it may be in the middle of a candidate
            held = search.known.get(default.key)
            if held is None or not held[1].ok:
                raise
        finally:
            search.builders.close()
        if self.static or default.key not in search.known:
            return Finals()
        with suppress(KeyboardInterrupt), self._stage("finals"):
            return self._finals(search, worker, default)
        self.interrupted = True
        return Finals()

    def _explore(self, search: Search, worker: Worker, default: Candidate) -> None:
        try:
            self._search(search, worker, default)
        finally:
            with self._bookkeeping(search):
                self._store(search, default)

    def _search(self, search: Search, worker: Worker, default: Candidate) -> None:
        """Try what the search suggests.

        An outcome is stored and told while the worker builds the next candidate.
        """
        suggestions = search.suggestions(lambda: self._over(search, default))
        lost = 0
        while True:
            with self._bookkeeping(search):
                suggestion = next(suggestions, None)
            if suggestion is None or self._done(search, suggestion, default):
                return
            outcome = suggestion.point.outcome
            if outcome is None:
                outcome = self._attempt(search, worker, suggestion, default)
            if outcome is None:
                return
            with self._bookkeeping(search):
                search.learn(suggestion, outcome)
            self._untold.append((suggestion.candidate, outcome))
            if suggestion.candidate == default and not outcome.ok:
                said = f"itself {outcome.status}"
                if outcome.status == LOST:
                    said = "not judged"
                raise TuningError(
                    f"the default configuration of {self.workload} is {said}: "
                    f"{outcome.reason}{self._hint(outcome)}"
                )
            self._compare(search, worker, default)
            lost = lost + 1 if outcome.status == LOST else 0
            if lost == _MOST_LOST:
                self.trouble = f"the search was given up: {outcome.reason}"
                return

    def _store(self, search: Search, default: Candidate) -> None:
        """Store what came of the last trials, and tell it."""
        search.store()
        told, self._untold = self._untold, []
        for candidate, outcome in told:
            self._tell(search, candidate, outcome, default)

    def _compare(self, search: Search, worker: Worker, default: Candidate) -> None:
        """Time the best so far beside the default, early and again.

        Twice as many trials later each time, and only if another one leads. What leads
        by a lucky measurement falls back before it misleads the search.
        """
        tried = search.counts[OK]
        if self.static or tried < self._next_comparison:
            return
        best, outcome = search.best(1)[0]
        if best == default:
            return
        self._next_comparison = 2 * tried
        base = Entrant(default, search.known[default.key][1].seconds)
        other = Entrant(best, outcome.seconds)
        with self._bookkeeping(search):
            self._store(search, default)
        with self._stage("finals"):
            found = finals.beside(worker, base, other, self._left(search, default))
        self._disturbed |= worker.disturbed
        self._early = found or self._early
        for candidate in (default, best):
            if candidate.key in found:
                search.correct(candidate, median(found[candidate.key]))

    def _hint(self, outcome: Outcome) -> str:
        """Where to find the traceback of a failure."""
        if outcome.status not in (FAILED, CRASHED):
            return ""
        return f"; see {self.log}" if self.log else "; --log FILE keeps its traceback"

    def _attempt(
        self, search: Search, worker: Worker, suggestion: Suggestion, default: Candidate
    ) -> Outcome | None:
        """Measure a candidate; None if the budget ended first."""
        candidate = suggestion.candidate
        if candidate == default:  # however short the budget
            # at least half of it for waiting
            left = max(self.ends - time.monotonic(), 2 * self.limit)
        else:
            left = self._left(search, default)
            if left <= min(self._usual, self.limit):
                return None
        limit = self.limit
        if self._usual:
            limit = min(limit, max(_PATIENCE * self._usual, _LEAST_PATIENCE))
        _LOG.info("trying %s", candidate)
        start = time.perf_counter()
        best = search.fastest() or 0.0
        with self._stage("build"):
            search.builders.await_built(candidate, left)
        try:
            outcome = worker.attempt(
                candidate,
                limit,
                best,
                left=left,
                meanwhile=partial(self._store, search, default),
            )
        except Late:
            self.spent["unfinished"] += time.perf_counter() - start
            return None
        except TuningError as problem:
            if candidate == default:
                raise
            outcome = Outcome(LOST, str(problem))
        self._starting = worker.start_seconds
        for stage, seconds in outcome.spent.items():
            self.spent[stage] += seconds
        if outcome.ok and candidate != default:
            spent = outcome.spent.items()
            busy = sum(each for stage, each in spent if stage not in UNCOUNTED)
            self._usual = max(self._usual, busy)
        return outcome

    def _left(self, search: Search, default: Candidate) -> float:
        """Seconds left for exploration, excluding the finals."""
        budget, alone = self.budget, len(search.known) <= 1
        if alone and self.whole is not None:
            budget = self.whole  # nothing to compare yet
        if budget is None:
            return inf
        if self.static:
            return budget - _AFTERWARDS - self.elapsed
        known = search.known.get(default.key)
        seconds = known[1].seconds if known is not None else 0.0
        entrants = [Entrant(default, seconds)] * (_FINALISTS + 2 + 3)
        need = finals.seconds_for(entrants, finals.MOST_ROUNDS) + _AFTERWARDS
        wins = finals.wins_needed(disturbed=self._disturbed)
        need += wins * (self._starting + 3 * self._usual)  # to confirm the winner
        elapsed = self.elapsed
        shared = budget - elapsed if alone else budget  # finals of one need little
        return budget - min(need, shared * _FINALS_SHARE) - elapsed

    def _done(self, search: Search, suggestion: Suggestion, default: Candidate) -> bool:
        if suggestion.candidate == default:
            # continue until something is correct, however short the budget
            return False
        return self._over(search, default)

    def _over(self, search: Search, default: Candidate) -> bool:
        """Whether the exploration has reached its end."""
        full = self.trials is not None and search.tried >= self.trials
        return full or self._left(search, default) <= 0

    def _finals(self, search: Search, worker: Worker, default: Candidate) -> Finals:
        base = [Entrant(default, search.known[default.key][1].seconds)]
        held = self.incumbent
        if held and held.key != default.key and not search.failure(held.candidate):
            base.append(held)
        taken = {entrant.key for entrant in base}
        others = [
            Entrant(candidate, outcome.seconds)
            for candidate, outcome in search.best(_FINALISTS)
            if candidate.key not in taken
        ]
        result = finals.run(worker, base, others, self._until_the_end())
        if not result.samples and all(each.key in self._early for each in base):
            # no time was left: what was compared last counts
            keys = {entrant.key for entrant in (*base, *others)}
            result.samples = {k: v for k, v in self._early.items() if k in keys}
        for candidate, _ in list(search.known.values()):
            if candidate.key in result.samples:
                search.correct(candidate, median(result.samples[candidate.key]))
        if result.samples:
            left = self._until_the_end()
            failed = [candidate for candidate, _ in result.failed]
            base = [entrant for entrant in base if entrant.candidate not in failed]
            self.doubt = finals.confirm(
                worker, base, others, result, lambda: left() - worker.start_seconds
            )
        for candidate, outcome in result.failed:
            search.revoke(candidate, outcome)
            if candidate == default:
                raise TuningError(
                    f"the default configuration of {self.workload} is no longer "
                    f"right: {outcome.reason}"
                )
        return result

    def enough(self, search: Search, default: Candidate) -> float:
        """Seconds in which a run that begins like this one compares something.

        As long as it took so far for another candidate, and as long as that beside it.
        """
        base = Entrant(default, search.known[default.key][1].seconds)
        wins = 1 + finals.wins_needed(disturbed=self._disturbed)
        compared = finals.seconds_for([base, base], finals.MOST_ROUNDS)
        return 3 * self.elapsed + wins * (self._starting + compared) + _AFTERWARDS

    @property
    def ends(self) -> float:
        """When the budget ends, by `time.monotonic`."""
        if self.budget is None:
            return inf
        return self._begun + max(self.budget, self.whole or 0.0)

    def _until_the_end(self) -> finals.Left:
        ends = self.ends
        if self.interrupted:
            ends = min(ends, time.monotonic() + _AFTER_INTERRUPT)
        return lambda: ends - time.monotonic()

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.spent[name] += time.perf_counter() - start

    @contextmanager
    def _bookkeeping(self, search: Search) -> Iterator[None]:
        """Count time outside of scheduling as bookkeeping."""
        scheduled = search.space.spent
        with self._stage("bookkeeping"):
            yield
        scheduled = search.space.spent - scheduled
        self.spent["schedule"] += scheduled
        self.spent["bookkeeping"] -= scheduled

    def _tell(
        self, search: Search, candidate: Candidate, outcome: Outcome, default: Candidate
    ) -> None:
        if self.listen is None:
            return
        base = search.known.get(default.key)
        member, members = self.place
        self.listen(
            Progress(
                self.op.id,
                member,
                members,
                self.workload,
                search.tried,
                self.trials,
                self.elapsed,
                self.budget,
                search.fastest(),
                base[1].seconds if base and base[1].ok else None,
                (candidate, outcome),
                dict(search.counts),
                search.space.size,
            )
        )


def space_note(space: Space, schedules: Sequence[object]) -> str:
    """Why there is nothing to tune; else empty."""
    if space.size != 1:
        return ""
    if not schedules:
        return (
            f"{space.op.id} has no schedule for {space.target.kind}, so there is "
            "nothing to choose: its loops run as they are written; give it one with "
            "@schedule"
        )
    return f"the schedule of {space.op.id} leaves nothing to choose"
