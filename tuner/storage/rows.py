"""Trials as data: what was tried, what came of it, and Optuna's names for both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Final

from tensorlang import lazy
from tensorlang.errors import TuningError
from tensorlang.frozen import frozen
from tensorlang.scheduling.knobs import Choice, Domain, Value
from tensorlang.tuner.workers.protocol import Candidate, Outcome

with lazy.modules(__name__):  # slow to import
    import optuna

_LONGEST_NAME: Final = 500


@frozen
class Row:
    """One finished trial."""

    candidate: Candidate
    outcome: Outcome
    params: Mapping[str, Value]  # values by Optuna's parameter names; see `parameter`
    distributions: Mapping[str, str]  # domains by the same names, in Optuna's JSON

    @classmethod
    def of(
        cls,
        candidate: Candidate,
        outcome: Outcome,
        domains: Mapping[str, tuple[Domain, Value]],
    ) -> Row:
        """Build from the domain and value of each of Optuna's parameters."""
        return cls(
            candidate,
            outcome,
            {name: value for name, (_, value) in domains.items()},
            {name: _to_json(domain) for name, (domain, _) in domains.items()},
        )

    def to_json(self) -> str:
        """One line, for `from_json`."""
        return json.dumps(
            [
                self.candidate.algorithm,
                dict(self.candidate.knobs),
                self.outcome.to_json(),
                dict(self.params),
                dict(self.distributions),
            ]
        )

    @classmethod
    def from_json(cls, text: str) -> Row:
        """Read the result of `to_json`; TuningError if malformed."""
        try:
            algorithm, knobs, outcome, params, distributions = json.loads(text)
            candidate = Candidate(str(algorithm), dict(knobs))
            known = Outcome.from_json(outcome)
            row = cls(candidate, known, dict(params), dict(distributions))
        except (ValueError, TypeError) as problem:
            raise TuningError(f"{str(text)[:120]} is not a trial: {problem}") from None
        if not all(map(_is_value, candidate.knobs.values())):
            raise TuningError(f"{candidate}: a knob has no list or object as its value")
        return row

    @property
    def state(self) -> optuna.trial.TrialState:
        """Optuna's state of the trial; incorrect candidates are pruned."""
        states = optuna.trial.TrialState
        return states.COMPLETE if self.outcome.ok else states.PRUNED

    def frozen(self) -> optuna.trial.FrozenTrial:
        """The trial for Optuna's samplers."""
        return optuna.trial.create_trial(
            state=self.state,
            value=self.outcome.seconds if self.outcome.ok else None,
            params=dict(self.params),
            distributions={
                name: distribution_of(text) for name, text in self.distributions.items()
            },
        )


def _is_value(value: object) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def parameter(algorithm: str, knob: str, domain: Domain) -> str:
    """Optuna's parameter name of a knob, which includes the domain.

    Optuna rejects a name with a changed domain; other algorithms' knobs and knobs whose
    options depend on other knobs or on the version of the schedule become separate
    parameters.
    """
    return f"{algorithm}.{knob}: {domain}"[:_LONGEST_NAME]


def distribution(domain: Domain) -> optuna.distributions.BaseDistribution:
    """A knob's domain as an Optuna distribution."""
    if isinstance(domain, Choice):
        return optuna.distributions.CategoricalDistribution(domain.options)
    return optuna.distributions.IntDistribution(
        domain.low, domain.high, log=domain.log, step=domain.step
    )


@cache
def _to_json(domain: Domain) -> str:
    return str(optuna.distributions.distribution_to_json(distribution(domain)))


@cache
def distribution_of(text: str) -> optuna.distributions.BaseDistribution:
    """An Optuna distribution of its JSON."""
    return optuna.distributions.json_to_distribution(text)
