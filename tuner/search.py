"""The search: Optuna suggests, schedules prune, rows already measured answer.

A search space is a schedule function run with a trial behind its knobs. What it refuses
(a step that is not legal, a static limit) is never built. What was measured before, in
this run or an earlier one, is never measured again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, Final

from tensorlang.errors import TensorlangError
from tensorlang.ops import building
from tensorlang.scheduling import Knobs
from tensorlang.scheduling.knobs import Choice, Domain
from tensorlang.tuner.protocol import ILLEGAL, Candidate, Outcome
from tensorlang.tuner.storage import Trials

if TYPE_CHECKING:
    from tensorlang.ops.operator import Operator
    from tensorlang.targets import Target
    from tensorlang.workload import Workload

_STARTUP: Final = 12
_REPEATS: Final = 64  # suggestions in a row that bring nothing new
_ALGORITHM: Final = "algorithm"


@dataclass(slots=True)
class Suggestion:
    """A configuration to try; `outcome` is set where it is known without trying."""

    candidate: Candidate
    domains: Mapping[str, Domain]
    trial: Any
    outcome: Outcome | None = None


@dataclass(slots=True)
class Space:
    """All configurations of an operator for a workload on a target."""

    op: Operator
    workload: Workload
    target: Target
    algorithms: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.algorithms = tuple(
            name
            for name, algorithm in self.op.algorithms.items()
            if algorithm.serves(self.workload)
        )

    def point(self, algorithm: str, knobs: Knobs) -> tuple[Candidate, str]:
        """The configuration that the knobs make, and why it is refused, if it is."""
        try:
            building.schedule(self.op, self.workload, self.target, algorithm, knobs)
        except TensorlangError as refusal:
            return Candidate(algorithm, dict(knobs.values)), str(refusal)
        return Candidate(algorithm, dict(knobs.values)), ""

    def default(self) -> Suggestion:
        """What is used where nothing was tuned."""
        knobs = Knobs()
        candidate, refusal = self.point(self.algorithms[0], knobs)
        outcome = Outcome(ILLEGAL, refusal) if refusal else None
        return Suggestion(candidate, dict(knobs.domains), None, outcome)


class Search:
    """Suggestions for one space, and what is known of it so far.

    Attributes:
        known: The outcome of every configuration tried, by its key.
        counts: How many outcomes of each status.
        reasons: How many failures of each kind.
    """

    def __init__(self, space: Space, trials: Trials, seed: int) -> None:
        import optuna  # noqa: PLC0415 - it is slow, and only tuning needs it

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = optuna.samplers.TPESampler(
            seed=seed, n_startup_trials=_STARTUP, multivariate=True
        )
        self._space, self._trials = space, trials
        self._study = optuna.create_study(sampler=sampler, direction="minimize")
        self.known: dict[str, tuple[Candidate, Outcome]] = {}
        self.counts: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self._domains: dict[str, Domain] = {}
        for candidate, outcome, row in trials.finished():
            self._remember(candidate, outcome)
            self._study.add_trial(row)

    def suggestions(self) -> Iterator[Suggestion]:
        """What to try next, until the space seems exhausted; `file` each one."""
        default = self._space.default()
        self._domains.update(default.domains)
        if default.candidate.key not in self.known:
            yield default
        repeats = 0
        while repeats < _REPEATS and not self._exhausted():
            suggestion = self._suggest()
            held = self.known.get(suggestion.candidate.key)
            if held is None:
                repeats = 0
                yield suggestion
            else:  # answered from its row
                repeats += 1
                self._tell(suggestion.trial, held[1])

    def _suggest(self) -> Suggestion:
        trial = self._study.ask()
        algorithm = self._space.algorithms[0]
        if len(self._space.algorithms) > 1:
            algorithm = trial.suggest_categorical(_ALGORITHM, self._space.algorithms)
        knobs = Knobs(trial=trial)
        candidate, refusal = self._space.point(algorithm, knobs)
        outcome = Outcome(ILLEGAL, refusal) if refusal else None
        return Suggestion(candidate, dict(knobs.domains), trial, outcome)

    def file(self, suggestion: Suggestion, outcome: Outcome) -> None:
        """Take note of an outcome, here and in the storage."""
        self._domains.update(suggestion.domains)
        self._remember(suggestion.candidate, outcome)
        row = self._trials.add(suggestion.candidate, outcome, suggestion.domains)
        if suggestion.trial is None:
            self._study.add_trial(row)
        else:
            self._tell(suggestion.trial, outcome)

    def best(self, count: int) -> list[tuple[Candidate, Outcome]]:
        """The fastest right configurations, at most `count` of them."""
        right = [entry for entry in self.known.values() if entry[1].ok]
        return sorted(right, key=lambda entry: entry[1].seconds)[:count]

    def _remember(self, candidate: Candidate, outcome: Outcome) -> None:
        self.known[candidate.key] = candidate, outcome
        self.counts[outcome.status] += 1
        if not outcome.ok:
            self.reasons[f"{outcome.status}: {_kind(outcome.reason)}"] += 1

    def _tell(self, trial: Any, outcome: Outcome) -> None:
        from optuna.trial import TrialState  # noqa: PLC0415 - it is slow

        if outcome.ok:
            self._study.tell(trial, outcome.seconds)
        else:
            self._study.tell(trial, state=TrialState.PRUNED)

    def _exhausted(self) -> bool:
        """Whether every configuration of a small space was tried."""
        if len(self._space.algorithms) > 1:
            return False
        size = prod(_size(domain) for domain in self._domains.values())
        return len(self.known) >= size


def _size(domain: Domain) -> int:
    if isinstance(domain, Choice):
        return len(domain.options)
    return (domain.high - domain.low) // domain.step + 1


def _kind(reason: str) -> str:
    """The reason without its numbers: what failures are counted by."""
    words = ("N" if any(c.isdigit() for c in word) else word for word in reason.split())
    return " ".join(words)[:160]
