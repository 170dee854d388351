"""Optuna's sampler of the tuner: schedules' cost models, corrected by measurements.

Suggested is what a model predicts to be fastest, after what was measured has corrected
it. Every few trials, and where there is no model, Optuna's TPE suggests: it does not
share the model's blind spots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Final

import optuna

from tensorlang.tuner.search.ranking import Measured, Ranking, values_of
from tensorlang.tuner.storage.rows import distribution
from tensorlang.tuner.workers.protocol import Candidate, Outcome

if TYPE_CHECKING:
    from tensorlang.tuner.search.space import Space

_Distributions = dict[str, optuna.distributions.BaseDistribution]
_STARTUP: Final = 12  # trials before TPE knows anything
_TURN: Final = 6  # each such trial is TPE's


class ModelSampler(optuna.samplers.TPESampler):  # type: ignore[misc] # untyped
    """Suggests what the space's schedules predict to be fastest.

    Args:
        space: The search space.
        seed: Suggestions are a function of seed and trials.

    Attributes:
        pending: Candidates that other tuners measure, which are not suggested.
        share: Whether a candidate is not left to another tuner.
    """

    def __init__(self, space: Space, seed: int) -> None:
        super().__init__(
            seed=seed,
            n_startup_trials=_STARTUP,
            multivariate=True,
            constant_liar=True,  # suggestions that are being built, or measured
            group=len(space.algorithms) > 1,
        )
        self._space, self._own_seed = space, seed
        self._rankings: dict[str, Ranking] = {}
        self._measured: dict[str, Measured] = {}
        self._decided: dict[str, Any] = {}
        self.pending: Sequence[Candidate] = ()
        self.share: Callable[[Candidate], bool] = lambda _: True

    def learn(self, candidate: Candidate, outcome: Outcome) -> None:
        """Take account of an outcome."""
        self._measured[candidate.key] = (
            candidate,
            outcome.seconds if outcome.ok else inf,
        )

    def before_trial(
        self, study: optuna.Study, trial: optuna.trial.FrozenTrial
    ) -> None:
        """Decide what is suggested.

        Optuna asks for it when a schedule function asks for its first knob, and the
        worker that runs the function cannot predict times meanwhile.
        """
        super().before_trial(study, trial)
        if self._guides(trial):
            self._decided = self._most_promising()

    def infer_relative_search_space(
        self, study: optuna.Study, trial: optuna.trial.FrozenTrial
    ) -> _Distributions:
        """The parameters of the modelled algorithms, or TPE's."""
        if not self._guides(trial):
            own: _Distributions = super().infer_relative_search_space(study, trial)
            return own
        found: _Distributions = {}
        for algorithm in self._space.modelled:
            domains = self._space.domains[algorithm]
            first = {knob: values_of(domain)[0] for knob, domain in domains.items()}
            named = self._space.named(Candidate(algorithm, first), domains)
            found |= {name: distribution(domain) for name, (domain, _) in named.items()}
        return found

    def sample_relative(
        self,
        study: optuna.Study,
        trial: optuna.trial.FrozenTrial,
        search_space: _Distributions,
    ) -> dict[str, Any]:
        """The values of the most promising candidate that was not tried."""
        if not self._guides(trial):
            own: dict[str, Any] = super().sample_relative(study, trial, search_space)
            return own
        return self._decided

    def _most_promising(self) -> dict[str, Any]:
        """Its values by Optuna's names; empty if there is none."""
        promising = [
            found
            for algorithm in self._space.modelled
            if (found := self._promising(algorithm)) is not None
        ]
        if not promising:
            return {}
        _, candidate = min(promising, key=lambda found: found[0])
        domains = self._space.domains[candidate.algorithm]
        named = self._space.named(candidate, domains)
        return {name: value for name, (_, value) in named.items()}

    def _guides(self, trial: optuna.trial.FrozenTrial) -> bool:
        """Whether the model suggests a trial."""
        turn = trial.number % _TURN == 0 and trial.number >= _STARTUP
        return bool(self._space.modelled) and not turn

    def _promising(self, algorithm: str) -> tuple[float, Candidate] | None:
        if algorithm not in self._rankings:
            self._rankings[algorithm] = Ranking(self._space, algorithm, self._own_seed)
        measured = [
            each for each in self._measured.values() if each[0].algorithm == algorithm
        ]
        pending = [each for each in self.pending if each.algorithm == algorithm]
        return self._rankings[algorithm].promising(measured, pending, self.share)
