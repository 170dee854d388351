"""The studies of a storage: what was tuned where, and how far it is."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from tensorlang import lazy
from tensorlang.errors import ArgumentError, TensorlangError
from tensorlang.tuner.storage import databases, tables
from tensorlang.tuner.storage.rows import Row
from tensorlang.tuner.storage.tables import Stored
from tensorlang.workload import Workload

with lazy.modules(__name__):  # slow to import
    import optuna
    import sqlalchemy
    from optuna.storages._rdb import models

LONGEST_NAME: Final = 500  # longer ones are cut


@dataclass(frozen=True, slots=True)
class About:
    """What a study tunes."""

    workload: Workload
    device: str  # fingerprint of the machine

    def to_json(self) -> str:
        """One line, for `from_json`."""
        return json.dumps({"workload": self.workload.to_json(), "device": self.device})

    @classmethod
    def from_json(cls, text: str) -> About | None:
        """Read the result of `to_json`; None if it is none."""
        try:
            data = json.loads(text)
            return cls(Workload.from_json(data["workload"]), str(data["device"]))
        except (ValueError, TypeError, LookupError, TensorlangError):
            return None


@dataclass(frozen=True, slots=True)
class Study:
    """A study of a storage."""

    id: int  # its key in Optuna's tables
    name: str
    about: About | None  # what it tunes, if that is known
    finished: int  # number of trials with an outcome
    running: int  # number of those that are claimed
    seconds: float | None  # best time; None if no trial was timed
    latest: datetime | None  # when the last trial began; None without trials


def every(url: str) -> list[Study]:
    """The studies of a storage, oldest first.

    Raises:
        RecordError, TuningError: the storage cannot be used. A file that is missing is
            an error, but for the user's own, which `tlang tune` makes.
    """
    try:
        return _every(url)
    except databases.Missing:
        if url != databases.default_url():
            raise
        return []


def _every(url: str) -> list[Study]:
    studies = models.StudyModel.__table__
    notes = models.StudyUserAttributeModel.__table__
    found = sqlalchemy.select(
        studies.c.study_id, studies.c.study_name, notes.c.value_json
    ).outerjoin_from(
        studies,
        notes,
        (notes.c.study_id == studies.c.study_id) & (notes.c.key == databases.ABOUT),
    )
    with databases.opened(url) as engine, engine.connect() as connection:
        counted: dict[int, list[Any]] = {}
        for row in connection.execute(_counted()):
            counted.setdefault(row[0], []).append(row)
        listed = connection.execute(found.order_by(studies.c.study_id)).all()
    return [_study(key, name, note, counted.get(key, [])) for key, name, note in listed]


def _counted() -> sqlalchemy.Select[Any]:
    """Study, state, number of trials, best time and last start."""
    trials = models.TrialModel.__table__
    values = models.TrialValueModel.__table__
    same = values.c.trial_id == trials.c.trial_id
    return (
        sqlalchemy.select(
            trials.c.study_id,
            trials.c.state,
            sqlalchemy.func.count(),
            sqlalchemy.func.min(values.c.value),
            sqlalchemy.func.max(trials.c.datetime_start),
        )
        .outerjoin_from(trials, values, same)
        .group_by(trials.c.study_id, trials.c.state)
    )


def _study(key: int, name: str, note: str | None, counted: Iterable[Any]) -> Study:
    states = optuna.trial.TrialState
    finished = running = 0
    times, latest = [], []
    for _, state, count, seconds, start in counted:
        finished += count * (state in (states.COMPLETE, states.PRUNED))
        running += count * (state == states.RUNNING)
        times += [] if seconds is None else [seconds]
        latest += [] if start is None else [start]
    about = None if note is None else About.from_json(json.loads(note))
    best, last = min(times, default=None), max(latest, default=None)
    return Study(key, name, about, finished, running, best, last)


def counts(url: str) -> dict[str, int]:
    """The number of finished trials of each study of a storage; none without its file.

    Raises:
        RecordError, TuningError: the storage cannot be used.
    """
    try:
        return {study.name: study.finished for study in _every(url)}
    except databases.Missing:
        return {}


def named(url: str, name: str) -> Study:
    """The study with a number, or with a part of its name that no other has.

    Raises:
        ArgumentError: there is none, or there are several.
        RecordError, TuningError: the storage cannot be used.
    """
    studies = every(url)
    found = [each for each in studies if name in (each.name, str(each.id))]
    found = found or [each for each in studies if name in each.name]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ArgumentError(f"no study {name!r}; tlang studies ls lists them")
    numbers = ", ".join(str(each.id) for each in found)
    raise ArgumentError(f"{name!r} is in the names of studies {numbers}; give a number")


def trials(url: str, study: Study) -> list[Stored]:
    """The trials of a study, oldest first.

    Raises:
        RecordError, TuningError: the storage cannot be used.
    """
    with databases.opened(url) as engine, engine.connect() as connection:
        return tables.read(connection, study.id)


def rows(url: str, name: str) -> list[Row]:
    """The trials with an outcome of the study with a name; empty without it.

    Raises:
        RecordError, TuningError: the storage cannot be used, as of `every`.
    """
    found = (study for study in every(url) if study.name == name[:LONGEST_NAME])
    told = (trial for study in found for trial in trials(url, study) if trial.told)
    return [trial.row for trial in told if trial.row is not None]
