"""Candidates of one algorithm, ranked by its schedule's cost model and measurements."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from tensorlang.scheduling import Knobs
from tensorlang.scheduling.knobs import Choice, Domain, Value
from tensorlang.tuner.search.surrogate import LENGTHS, Floats, Surrogate
from tensorlang.tuner.workers.protocol import Candidate

if TYPE_CHECKING:
    from tensorlang.tuner.search.space import Space

_AT_RANDOM: Final = 192  # candidates
_BEST: Final = 4  # candidates whose neighbours are ranked
_DESCENTS: Final = 8  # to the best of all neighbours by the model
_MOST_VALUES: Final = 24  # of a knob
_MOST_MEASURED: Final = 256  # candidates: the cost of a fit is cubic
_PENALTY: Final = 1.0  # of the logarithm of a time, for what failed

_GROWN: Final = 1.25  # times the measured candidates, after which a length is fitted

Measured = tuple[Candidate, float]
Indices = npt.NDArray[np.intp]


class Ranking:
    """Candidates with their predicted times; neighbours differ in one knob.

    Of candidates that the model does not tell apart only one is of interest: as a rule
    they are the same code.

    Args:
        space: The search space.
        algorithm: The algorithm, which has a cost model.
        seed: Seed of the candidates at random.
    """

    def __init__(self, space: Space, algorithm: str, seed: int) -> None:
        self._space, self._algorithm = space, algorithm
        space.point(algorithm, Knobs())  # for the domains
        self._costs: dict[str, float] = {}
        self._kept: dict[float, Candidate] = {}  # by predicted time
        self._numbered: dict[str, Domain] = {}  # the knobs that have numbers
        self._rows: dict[str, int] = {}  # of the numbers, by key
        self._numbers = np.empty((0, 0))
        self._distances: dict[int, Floats] = {}  # of all rows, by a measured one's
        self._ordered: list[float] = []  # the predicted times of `_kept`
        self._logs, self._places_kept = np.empty(0), np.empty(0, np.intp)
        self._length, self._refit = LENGTHS[0], 0.0
        self._explored: set[str] = set()
        lowest = self._whole(Candidate(algorithm))
        self._add(lowest)
        for _ in range(_DESCENTS):
            self._explore(lowest)
            lowest = self._kept.get(min(self._kept, default=math.inf), lowest)
        random = np.random.default_rng(seed)
        options = {knob: values_of(domain) for knob, domain in self._domains.items()}
        drawn = (
            {knob: o[int(random.integers(len(o)))] for knob, o in options.items()}
            for _ in range(_AT_RANDOM)
        )
        self._add_all(Candidate(algorithm, knobs) for knobs in drawn)

    @property
    def _domains(self) -> Mapping[str, Domain]:
        return self._space.domains[self._algorithm]

    def promising(
        self,
        measured: Sequence[Measured],
        pending: Sequence[Candidate] = (),
        share: Callable[[Candidate], bool] = lambda _: True,
    ) -> tuple[float, Candidate] | None:
        """The most promising candidate and its optimistic time; None if all were tried.

        Args:
            measured: Candidates and their times, infinite for those that failed.
            pending: Candidates that are being measured.
            share: Whether a candidate is not left to another tuner.
        """
        measured = [each for each in measured if self._add(each[0]) < math.inf]
        best = sorted(measured, key=lambda each: each[1])[:_BEST]
        for candidate, seconds in best:
            if math.isfinite(seconds):
                self._explore(candidate)
        tried = {self._costs[candidate.key] for candidate, _ in measured}
        tried |= {self._add(candidate) for candidate in pending}
        costs = self._in_order()
        left = [at for at, cost in enumerate(costs) if cost not in tried]
        if not left:
            return None
        logs = self._logs[left]
        if any(math.isfinite(seconds) for _, seconds in measured):
            learned, apart = self._learned(measured)
            between = learned.between(apart[self._places_kept[left]])
            logs += learned.mean(between)
            # others cannot be the lowest: no error is larger than the spread
            some = np.flatnonzero(logs <= logs.min() + learned.spread)
            logs[some] -= learned.error(between[some])
        while math.isfinite(logs.min()):
            first = int(np.argmin(logs))
            candidate = self._kept[costs[left[first]]]
            if share(candidate):
                return float(logs[first]), self._whole(candidate)
            logs[first] = math.inf
        return None

    def _in_order(self) -> list[float]:
        """The times of the candidates that are kept, whose tables are made once."""
        self._renumber()
        if len(self._ordered) != len(self._kept):
            self._ordered = sorted(self._kept)
            self._logs = np.log(self._ordered)
            kept = [self._kept[cost] for cost in self._ordered]
            self._places_kept = self._places(kept)
        return self._ordered

    def _learned(self, measured: Sequence[Measured]) -> tuple[Surrogate, Floats]:
        """What the measured candidates say, and the distances of all from them.

        A length is fitted seldom.
        """
        some = measured[-_MOST_MEASURED:]
        slowest = max(seconds for _, seconds in some if math.isfinite(seconds))
        failed = math.log(slowest) + _PENALTY
        residuals = [
            (math.log(seconds) if math.isfinite(seconds) else failed)
            - math.log(self._costs[candidate.key])
            for candidate, seconds in some
        ]
        lengths = (self._length,) if len(some) < self._refit else LENGTHS
        places = self._places([c for c, _ in some])
        apart = self._apart(places)
        made = Surrogate(apart[places], np.array(residuals), lengths)
        if len(some) >= self._refit:
            self._length, self._refit = made.length, len(some) * _GROWN
        return made, apart

    def _apart(self, places: Indices) -> Floats:
        """Distances of all rows from some, by column, which are computed once."""
        for at in places.tolist():
            known = self._distances.get(at, np.empty(0))
            if len(known) < len(self._numbers):
                new = np.abs(self._numbers[len(known) :] - self._numbers[at])
                self._distances[at] = np.concatenate([known, new.sum(axis=1)])
        return np.array([self._distances[at] for at in places.tolist()]).T

    def _explore(self, around: Candidate) -> None:
        """Add the neighbours of a candidate, once."""
        if around.key not in self._explored:
            self._explored.add(around.key)
            self._add_all(self._neighbours(around))

    def _neighbours(self, around: Candidate) -> Iterator[Candidate]:
        for knob, domain in self._domains.items():
            for value in values_of(domain):
                if value != around.knobs.get(knob):
                    yield Candidate(self._algorithm, {**around.knobs, knob: value})

    def _whole(self, candidate: Candidate) -> Candidate:
        """A candidate with defaults for the knobs that it lacks."""
        defaults = self._space.defaults[self._algorithm]
        return Candidate(self._algorithm, {**defaults, **candidate.knobs})

    def _add(self, candidate: Candidate) -> float:
        """The predicted time of a candidate."""
        if candidate.key not in self._costs:
            self._add_all([candidate])
        return self._costs[candidate.key]

    def _add_all(self, candidates: Iterable[Candidate]) -> None:
        """Predict the times of candidates; the first with each time is kept."""
        new = {c.key: c for c in candidates if c.key not in self._costs}
        settings = [candidate.knobs for candidate in new.values()]
        costs = self._space.predicted(self._algorithm, settings) if new else []
        for (key, candidate), exact in zip(new.items(), costs, strict=True):
            cost = self._costs[key] = float(f"{exact:.9g}")
            if cost < math.inf:
                self._kept.setdefault(cost, self._whole(candidate))

    def _renumber(self) -> None:
        """Begin anew where domains have changed."""
        if self._domains != self._numbered:
            self._numbered, self._rows = dict(self._domains), {}
            self._ordered, self._distances = [], {}

    def _places(self, candidates: Sequence[Candidate]) -> Indices:
        """The rows of numbers for the knobs of candidates, which are computed once."""
        keys = [candidate.key for candidate in candidates]
        pairs = zip(keys, candidates, strict=True)
        if new := {key: each for key, each in pairs if key not in self._rows}:
            numbers, first = self._numbers_of(new.values()), len(self._rows)
            known = [self._numbers] if first else []
            self._numbers = np.concatenate([*known, numbers])
            self._rows |= zip(new, range(first, first + len(new)), strict=True)
        return np.array([self._rows[key] for key in keys], np.intp)

    def _numbers_of(self, candidates: Iterable[Candidate]) -> Floats:
        """Ranks of ordered values, bits of others."""
        knobs = [self._whole(each).knobs for each in candidates]
        columns: list[list[float]] = []
        for name, domain in self._domains.items():
            at, values = [each[name] for each in knobs], values_of(domain)
            if ordered := _ordered(values):
                ranks = np.interp(np.array(at, float), ordered, range(len(ordered)))
                columns.append([float(rank) / (len(ordered) - 1) for rank in ranks])
            else:
                columns += [[0.5 * (v == value) for v in at] for value in values]
        return np.array(columns).T


def _ordered(values: Sequence[Value]) -> list[int]:
    """The values in order, if they are several numbers; else empty."""
    numbers = [value for value in values if type(value) is int]
    return sorted(numbers) if len(numbers) == len(values) > 1 else []


def values_of(domain: Domain) -> tuple[Value, ...]:
    """The values of a domain, or evenly spread ones if there are many."""
    if isinstance(domain, Choice):
        return domain.options
    count = (domain.high - domain.low) // domain.step + 1
    spread = np.geomspace if domain.log else np.linspace
    steps = spread(1, count, min(count, _MOST_VALUES)).round().astype(int)
    return tuple(
        int(domain.low + (step - 1) * domain.step) for step in dict.fromkeys(steps)
    )
