"""Trials as rows of Optuna's tables, with one statement per table.

Optuna's ORM writes a trial of five knobs in 26 statements, 10 to 30 ms, and reads a
thousand trials per second. These are the same rows in the same tables (visible in
Optuna's dashboard), written in four statements and read in one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from tensorlang import lazy
from tensorlang.errors import TuningError
from tensorlang.scheduling.knobs import Choice, Domain, Value
from tensorlang.tuner.workers.protocol import Candidate, Outcome

if TYPE_CHECKING:
    import optuna
    import sqlalchemy
    from optuna.storages._rdb import models
    from sqlalchemy.engine import Connection, Engine
else:  # slow to import
    optuna = lazy.module("optuna")
    models = lazy.module("optuna.storages._rdb.models")
    sqlalchemy = lazy.module("sqlalchemy")

_KEY: Final = "tensorlang"
_LONGEST_NAME: Final = 500


@dataclass(frozen=True, slots=True)
class Row:
    """One finished trial.

    Attributes:
        candidate: The candidate.
        outcome: Its outcome.
        params: Values by Optuna's parameter names; see `parameter`.
        distributions: Domains by the same names, in Optuna's JSON.
    """

    candidate: Candidate
    outcome: Outcome
    params: Mapping[str, Value]
    distributions: Mapping[str, str]

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
            {
                name: optuna.distributions.distribution_to_json(distribution(domain))
                for name, (domain, _) in domains.items()
            },
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
        """Read the result of `to_json`.

        Raises:
            TuningError: malformed.
        """
        try:
            algorithm, knobs, outcome, params, distributions = json.loads(text)
            candidate = Candidate(str(algorithm), dict(knobs))
            known = Outcome.from_json(outcome)
            return cls(candidate, known, dict(params), dict(distributions))
        except (ValueError, TypeError) as problem:
            raise TuningError(f"{str(text)[:120]} is not a trial: {problem}") from None

    def frozen(self) -> optuna.trial.FrozenTrial:
        """The trial for Optuna's samplers; incorrect candidates are pruned."""
        return optuna.trial.create_trial(
            state=_state(complete=self.outcome.ok),
            value=self.outcome.seconds if self.outcome.ok else None,
            params=dict(self.params),
            distributions={
                name: optuna.distributions.json_to_distribution(text)
                for name, text in self.distributions.items()
            },
        )


def _state(*, complete: bool) -> optuna.trial.TrialState:
    states = optuna.trial.TrialState
    return states.COMPLETE if complete else states.PRUNED


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


def read(engine: Engine, study: int) -> Iterator[Row]:
    """The complete rows of a study that this module wrote, oldest first."""
    trials = models.TrialModel.__table__
    notes = models.TrialUserAttributeModel.__table__
    wanted = (
        sqlalchemy.select(notes.c.value_json)
        .join(trials, trials.c.trial_id == notes.c.trial_id)
        .where(trials.c.study_id == study, notes.c.key == _KEY)
        .order_by(trials.c.trial_id)
    )
    with engine.connect() as connection:
        texts = [text for (text,) in connection.execute(wanted)]
    for text in texts:
        try:
            yield Row.from_json(json.loads(text))
        except (TuningError, ValueError):
            continue  # retried


def write(engine: Engine, study: int, row: Row) -> None:
    """Add a finished trial in one transaction."""
    with engine.begin() as connection:
        trial = _trial(connection, study, complete=row.outcome.ok)
        values = [
            {
                "trial_id": trial,
                "param_name": name,
                "param_value": _internal(text, row.params[name]),
                "distribution_json": text,
            }
            for name, text in row.distributions.items()
        ]
        if values:
            connection.execute(models.TrialParamModel.__table__.insert(), values)
        note = {"trial_id": trial, "key": _KEY, "value_json": json.dumps(row.to_json())}
        connection.execute(models.TrialUserAttributeModel.__table__.insert(), note)
        if row.outcome.ok:
            kind = models.TrialValueModel.TrialValueType.FINITE
            value = {"trial_id": trial, "objective": 0, "value_type": kind}
            value["value"] = row.outcome.seconds
            connection.execute(models.TrialValueModel.__table__.insert(), value)


def _trial(connection: Connection, study: int, *, complete: bool) -> int:
    """Insert a trial and return its id; numbers are sequential: writers serialise."""
    trials = models.TrialModel.__table__
    studies = models.StudyModel.__table__
    if connection.dialect.name != "sqlite":  # in SQLite, an insert locks the database
        held = sqlalchemy.select(studies.c.study_id).where(studies.c.study_id == study)
        connection.execute(held.with_for_update())
    number = (
        sqlalchemy.select(sqlalchemy.func.count())
        .where(trials.c.study_id == study)
        .scalar_subquery()
    )
    now = datetime.now()  # noqa: DTZ005 - Optuna's convention
    made = connection.execute(
        trials.insert().values(
            number=number,
            study_id=study,
            state=_state(complete=complete),
            datetime_start=now,
            datetime_complete=now,
        )
    )
    key = made.inserted_primary_key
    assert key is not None
    return int(key[0])


def _internal(text: str, value: Value) -> float:
    return float(
        optuna.distributions.json_to_distribution(text).to_internal_repr(value)
    )
