"""The studies of a storage: what was tuned where, and how far it is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from tensorlang import lazy
from tensorlang.errors import ArgumentError, TensorlangError
from tensorlang.frozen import frozen
from tensorlang.tuner.storage import databases, tables
from tensorlang.tuner.storage.rows import Row
from tensorlang.tuner.storage.tables import Stored
from tensorlang.workload import Workload

with lazy.modules(__name__):  # slow to import
    import optuna
    import sqlalchemy
    from optuna.storages._rdb import models

LONGEST_NAME: Final = 500  # longer ones are cut
# trials without a win that finish a search: with 95 % confidence, less than a tenth of
# what it still tries would win (0.9^29 < 0.05)
ENOUGH: Final = 29


@frozen
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


@frozen
class Reached:
    """What a run that came to its end says about its study."""

    # whether the whole space was tried and the best compared, or nothing more can be
    whole: bool
    won: int  # the number of trials at the last win, or where none was compared

    def to_json(self) -> str:
        """One line, for `from_json`."""
        return json.dumps([self.whole, self.won])

    @classmethod
    def from_json(cls, text: str) -> Reached | None:
        """Read the result of `to_json`; None if it is none."""
        try:
            whole, won = json.loads(text)
            return cls(bool(whole), int(won))
        except (ValueError, TypeError):
            return None


@frozen
class Study:
    """A study of a storage."""

    id: int  # its key in Optuna's tables
    name: str
    about: About | None  # what it tunes, if that is known
    finished: int  # number of trials with an outcome
    running: int  # number of those that are claimed
    seconds: float | None  # best time; None if no trial was timed
    latest: datetime | None  # when the last trial began; None without trials
    reached: Reached | None = None  # how far it is; None if no run came to its end

    @property
    def done(self) -> int:
        """How far: 2 if nothing is left, 1 after `ENOUGH` without a win, else 0."""
        if self.reached is None:
            return 0
        without = self.finished - self.reached.won
        return 2 if self.reached.whole else int(without >= ENOUGH)


def turn(study: Study | None, seconds: float) -> tuple[int, int, float]:
    """A key that sorts workloads by what their tuning is worth.

    Those whose search is not done come first, the dearest before others; then those
    that are done, in turn, and last those of which nothing is left to try.

    Args:
        study: The search so far, if there is one.
        seconds: The time that the workload takes of the whole.
    """
    if study is None or not study.done:
        return 0, 0, -seconds
    return study.done, study.finished, -seconds


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
    found = sqlalchemy.select(studies.c.study_id, studies.c.study_name)
    noted = sqlalchemy.select(notes.c.study_id, notes.c.key, notes.c.value_json)
    noted = noted.where(notes.c.key.in_((databases.ABOUT, tables.REACHED)))
    with databases.opened(url) as engine, engine.connect() as connection:
        counted: dict[int, list[Any]] = {}
        for row in connection.execute(_counted()):
            counted.setdefault(row[0], []).append(row)
        said: dict[int, dict[str, str]] = {}
        for key, name, text in connection.execute(noted):
            said.setdefault(key, {})[name] = json.loads(text)
        listed = connection.execute(found.order_by(studies.c.study_id)).all()
    return [
        _study(key, name, said.get(key, {}), counted.get(key, []))
        for key, name in listed
    ]


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


def _study(
    key: int, name: str, said: Mapping[str, str], counted: Iterable[Any]
) -> Study:
    states = optuna.trial.TrialState
    finished = running = 0
    times, latest = [], []
    for _, state, count, seconds, start in counted:
        finished += count * (state in (states.COMPLETE, states.PRUNED))
        running += count * (state == states.RUNNING)
        times += [] if seconds is None else [seconds]
        latest += [] if start is None else [start]
    about = About.from_json(said.get(databases.ABOUT, ""))
    reached = Reached.from_json(said.get(tables.REACHED, ""))
    best, last = min(times, default=None), max(latest, default=None)
    return Study(key, name, about, finished, running, best, last, reached)


def by_name(url: str) -> dict[str, Study]:
    """The studies of a storage by name; none without its file.

    Raises:
        RecordError, TuningError: the storage cannot be used.
    """
    try:
        return {study.name: study for study in _every(url)}
    except databases.Missing:
        return {}


def of_name(studies: Mapping[str, Study], name: str) -> Study | None:
    """The study of a name, which may be longer than those of a storage."""
    return studies.get(name[:LONGEST_NAME])


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
