"""Rows in Optuna's tables: claimed, finished and read, with a statement per table.

Optuna's ORM writes a trial of five knobs in 26 statements, 10 to 30 ms, and reads a
thousand trials per second. These are the same rows in the same tables (visible in
Optuna's dashboard), written in a statement each, and read in one. The statements
of each trial are built once.

A claim is a trial in Optuna's state RUNNING with a heartbeat, which ends with it. One
whose heartbeat is too old is FAIL, as in Optuna.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tensorlang import lazy
from tensorlang.errors import TuningError
from tensorlang.frozen import frozen
from tensorlang.scheduling.knobs import Value
from tensorlang.tuner.storage import rows
from tensorlang.tuner.storage.rows import Row

with lazy.modules(__name__):  # slow to import
    import optuna
    import sqlalchemy
    from optuna.storages._rdb import models

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Engine

_KEY: Final = "tensorlang"  # of a trial's row
_CODE: Final = "tensorlang code"  # of what it measured
_INDICES: Final = {  # by name: the table, and what of it
    "tensorlang_codes": (
        "trial_user_attributes",
        f"(value_json) WHERE key = '{_CODE}'",
    ),
    "tensorlang_trials": ("trials", "(study_id, trial_id)"),
}
REACHED: Final = "tensorlang reached"  # the key of how far a study is
_LAST: Final = (1 << 31) - 1  # no key is greater
SOME: Final = 2048  # trials of a large study: the latest, and the fastest


@frozen
class Stored:
    """A trial in the database."""

    id: int  # its key in Optuna's tables
    number: int  # its place in the study, from 0
    state: optuna.trial.TrialState  # Optuna's state
    # seconds since its heartbeat by the clock of the database; None without one
    age: float | None
    row: Row | None  # trial; None if another program wrote it, or an unknown version

    @property
    def running(self) -> bool:
        """Whether it is a claim."""
        return bool(self.state == optuna.trial.TrialState.RUNNING)

    @property
    def told(self) -> bool:
        """Whether it has an outcome."""
        return self.state in _finished() and self.row is not None


def _finished() -> tuple[optuna.trial.TrialState, ...]:
    return optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED


def lock(connection: Connection, study: int, *, lasting: bool = True) -> None:
    """Exclude other writers of new trials until the transaction ends.

    The keys of trials then increase in the order in which transactions end, and their
    numbers are consecutive.

    Args:
        connection: The transaction.
        study: The key of the study.
        lasting: Whether to wait for the disk: a claim may be lost with the server.
    """
    connection.execute(
        _locking(connection.dialect.name, lasting=lasting), {"study": study}
    )


@cache
def _locking(dialect: str, *, lasting: bool) -> sqlalchemy.Executable:
    studies = models.StudyModel.__table__
    mine = studies.c.study_id == sqlalchemy.bindparam("study")
    if dialect == "sqlite":  # any change locks the database
        same = sqlalchemy.update(studies).where(mine)
        return same.values(study_name=studies.c.study_name)
    held = sqlalchemy.select(studies.c.study_id).where(mine)
    if dialect == "postgresql" and not lasting:
        local = sqlalchemy.func.set_config("synchronous_commit", "off", True)
        held = held.add_columns(local)
    return held.with_for_update()


def writes_of_others(connection: Connection) -> int | None:
    """A number that changes with each transaction of others; None if nobody counts."""
    if connection.dialect.name != "sqlite":
        return None
    return int(connection.exec_driver_sql("PRAGMA data_version").scalar_one())


def reached(connection: Connection, study: int) -> str:
    """What `reach` noted last; empty before."""
    notes = models.StudyUserAttributeModel.__table__
    found = sqlalchemy.select(notes.c.value_json)
    found = found.where(notes.c.study_id == study, notes.c.key == REACHED)
    text = connection.execute(found).scalar()
    return str(json.loads(text)) if text else ""


def reach(connection: Connection, study: int, text: str) -> None:
    """Note how far a study is, under `lock`."""
    notes = models.StudyUserAttributeModel.__table__
    own = notes.c.study_id == study, notes.c.key == REACHED
    connection.execute(sqlalchemy.delete(notes).where(*own))
    note = {"study_id": study, "key": REACHED, "value_json": json.dumps(text)}
    connection.execute(notes.insert(), note)


def index(engine: Engine) -> None:
    """Let trials be found quickly; slowly, if only others may change the tables.

    Optuna's own indices are missing where its tables were made by a process that was
    killed amid them: SQLite commits each step.
    """
    if engine.dialect.name not in ("sqlite", "postgresql"):
        return
    for made in models.BaseModel.metadata.sorted_tables:
        for own in made.indexes:
            with suppress(sqlalchemy.exc.SQLAlchemyError):
                own.create(engine, checkfirst=True)
    inspector = sqlalchemy.inspect(engine)
    for name, (table, columns) in _INDICES.items():
        if any(known["name"] == name for known in inspector.get_indexes(table)):
            continue
        said = sqlalchemy.text(f"CREATE INDEX {name} ON {table} {columns}")
        with suppress(sqlalchemy.exc.SQLAlchemyError), engine.begin() as connection:
            connection.execute(said)


@cache
def _stored() -> sqlalchemy.Select[Any]:
    """What `_found` makes trials of, oldest first."""
    trials = models.TrialModel.__table__
    notes = models.TrialUserAttributeModel.__table__
    beats = models.TrialHeartbeatModel.__table__
    return (
        sqlalchemy.select(
            trials.c.trial_id,
            trials.c.number,
            trials.c.state,
            notes.c.value_json,
            beats.c.heartbeat,
            sqlalchemy.func.now(),
        )
        .outerjoin_from(
            trials,
            notes,
            (notes.c.trial_id == trials.c.trial_id) & (notes.c.key == _KEY),
        )
        .outerjoin(beats, beats.c.trial_id == trials.c.trial_id)
        .where(trials.c.study_id == sqlalchemy.bindparam("study"))
        .order_by(trials.c.trial_id)
    )


@cache
def _after(*, also: bool) -> sqlalchemy.Select[Any]:
    """Trials after a key, and those with some keys."""
    key = models.TrialModel.__table__.c.trial_id
    wanted = key > sqlalchemy.bindparam("after")
    if also:
        wanted |= key.in_(sqlalchemy.bindparam("also", expanding=True))
    return _stored().where(wanted)


def _found(
    connection: Connection, wanted: sqlalchemy.Select[Any], **values: object
) -> list[Stored]:
    return [
        Stored(key, number, state, _age(beat, now), _row(text))
        for key, number, state, text, beat, now in connection.execute(wanted, values)
    ]


def finished(connection: Connection, study: int) -> int:
    """The number of finished trials of a study."""
    trials = models.TrialModel.__table__
    count = sqlalchemy.select(sqlalchemy.func.count()).select_from(trials)
    mine = trials.c.study_id == study, trials.c.state.in_(_finished())
    return int(connection.execute(count.where(*mine)).scalar() or 0)


def read(
    connection: Connection, study: int, after: int = -1, also: Collection[int] = ()
) -> list[Stored]:
    """Trials of a study, oldest first: those after a key, and those with given ones."""
    values = {"also": list(also)} if also else {}
    wanted = _after(also=bool(also))
    return _found(connection, wanted, study=study, after=after, **values)


def read_some(connection: Connection, study: int) -> tuple[list[Stored], int]:
    """What a tuner that joins has to know, and the number of other finished trials.

    Of a large study these are the latest trials, the fastest ones, and the claims.
    """
    trials = models.TrialModel.__table__
    values = models.TrialValueModel.__table__
    mine = trials.c.study_id == study
    keys = sqlalchemy.select(trials.c.trial_id).where(mine)
    latest = keys.order_by(trials.c.trial_id.desc()).offset(SOME).limit(1)
    if (after := connection.execute(latest).scalar()) is None:
        return read(connection, study), 0
    fastest = (
        keys.join_from(trials, values, values.c.trial_id == trials.c.trial_id)
        .where(trials.c.state.in_(_finished()))
        .order_by(values.c.value)
        .limit(SOME)
    )
    claimed = trials.c.state == optuna.trial.TrialState.RUNNING
    wanted = (trials.c.trial_id > after) | claimed
    wanted |= trials.c.trial_id.in_(connection.execute(fastest).scalars().all())
    found = _found(connection, _stored().where(wanted), study=study)
    told = sum(trial.told for trial in found)
    return found, finished(connection, study) - told


def told(connection: Connection, study: int, code: str) -> Row | None:
    """The latest trial that measured a code; None if there is none."""
    notes = models.TrialUserAttributeModel.__table__
    named = notes.c.key == sqlalchemy.literal_column(f"'{_CODE}'")  # as the index
    same = sqlalchemy.select(notes.c.trial_id).where(named)
    keys = connection.execute(same.where(notes.c.value_json == json.dumps(code)))
    found = read(connection, study, _LAST, keys.scalars().all())
    known = [trial.row for trial in found if trial.told]
    return known[-1] if known else None


def _age(beat: datetime | None, now: datetime) -> float | None:
    """Seconds since a heartbeat, which is without a time zone, as in Optuna."""
    return None if beat is None else (now.replace(tzinfo=None) - beat).total_seconds()


def _row(text: str | None) -> Row | None:
    if text is None:
        return None
    try:
        return Row.from_json(json.loads(text))
    except (TuningError, ValueError):
        return None  # tried again


def claim(connection: Connection, study: int, number: int, row: Row) -> int:
    """Add a trial that begins, under `lock`; its key."""
    trial = _trial(connection, study, number, row, optuna.trial.TrialState.RUNNING)
    beats = models.TrialHeartbeatModel.__table__
    connection.execute(beats.insert(), {"trial_id": trial})
    return trial


def add(connection: Connection, study: int, number: int, row: Row) -> int:
    """Add a trial that is finished, under `lock`; its key."""
    trial = _trial(connection, study, number, row, row.state)
    _results(connection, trial, row)
    return trial


def holds(connection: Connection, study: int, row: Row, after: int) -> bool:
    """Whether a trial was added after a key, under `lock`."""
    trials = models.TrialModel.__table__
    notes = models.TrialUserAttributeModel.__table__
    found = (
        sqlalchemy.select(trials.c.trial_id)
        .join_from(trials, notes, notes.c.trial_id == trials.c.trial_id)
        .where(trials.c.study_id == study, trials.c.trial_id > after)
        .where(notes.c.key == _KEY, notes.c.value_json == json.dumps(row.to_json()))
    )
    return connection.execute(found.limit(1)).first() is not None


def finish(connection: Connection, trial: int, row: Row) -> bool:
    """Turn a claim into a finished trial; False if it was taken away meanwhile."""
    if not _end(connection, [trial], row.state):
        trials = models.TrialModel.__table__
        state = sqlalchemy.select(trials.c.state).where(trials.c.trial_id == trial)
        # the transaction before may have succeeded without an answer
        return connection.execute(state).scalar() in _finished()
    text = json.dumps(row.to_json())
    connection.execute(_noting(), {"trial": trial, "text": text})
    _results(connection, trial, row)
    return True


@cache
def _noting() -> sqlalchemy.Update:
    notes = models.TrialUserAttributeModel.__table__
    own = notes.c.trial_id == sqlalchemy.bindparam("trial")
    note = sqlalchemy.update(notes).where(own, notes.c.key == _KEY)
    return note.values(value_json=sqlalchemy.bindparam("text"))


def release(connection: Connection, claims: Collection[int]) -> None:
    """Give claims up: in Optuna's state FAIL."""
    _end(connection, claims, optuna.trial.TrialState.FAIL)


def beat(connection: Connection, claims: Collection[int]) -> None:
    """Renew the heartbeat of claims."""
    beats = models.TrialHeartbeatModel.__table__
    mine = sqlalchemy.update(beats).where(beats.c.trial_id.in_(claims))
    connection.execute(mine.values(heartbeat=sqlalchemy.func.current_timestamp()))


def _end(
    connection: Connection, claims: Collection[int], state: optuna.trial.TrialState
) -> int:
    """End claims and their heartbeats; the number of those that were running."""
    update, delete = _ending()
    keys = {"claims": list(claims)}
    found = connection.execute(update, {**keys, "ended": state, "now": _now()})
    connection.execute(delete, keys)
    return found.rowcount


@cache
def _ending() -> tuple[sqlalchemy.Update, sqlalchemy.Delete]:
    trials = models.TrialModel.__table__
    beats = models.TrialHeartbeatModel.__table__
    claims: sqlalchemy.BindParameter[Any] = sqlalchemy.bindparam(
        "claims", expanding=True
    )
    ended = sqlalchemy.bindparam("ended", type_=trials.c.state.type)
    now = sqlalchemy.bindparam("now", type_=trials.c.datetime_complete.type)
    running = trials.c.state == optuna.trial.TrialState.RUNNING
    update = sqlalchemy.update(trials).where(trials.c.trial_id.in_(claims), running)
    delete = sqlalchemy.delete(beats).where(beats.c.trial_id.in_(claims))
    return update.values(state=ended, datetime_complete=now), delete


def _now() -> datetime:
    return datetime.now()  # noqa: DTZ005 - Optuna's convention


def _trial(
    connection: Connection,
    study: int,
    number: int,
    row: Row,
    state: optuna.trial.TrialState,
) -> int:
    """Insert a trial and its notes; its key."""
    begun = {"number": number, "study_id": study, "state": state}
    begun["datetime_start"] = now = _now()
    if state != optuna.trial.TrialState.RUNNING:
        begun["datetime_complete"] = now
    made = connection.execute(models.TrialModel.__table__.insert(), begun)
    key = made.inserted_primary_key
    assert key is not None
    notes = {_KEY: row.to_json(), _CODE: row.outcome.ir}
    said = [
        {"trial_id": int(key[0]), "key": name, "value_json": json.dumps(text)}
        for name, text in notes.items()
        if text
    ]
    connection.execute(models.TrialUserAttributeModel.__table__.insert(), said)
    return int(key[0])


def _results(connection: Connection, trial: int, row: Row) -> None:
    """Insert the parameters and the time of a finished trial."""
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
    if row.outcome.ok:
        kind = models.TrialValueModel.TrialValueType.FINITE
        value = {"trial_id": trial, "objective": 0, "value_type": kind}
        value["value"] = row.outcome.seconds
        connection.execute(models.TrialValueModel.__table__.insert(), value)


def _internal(text: str, value: Value) -> float:
    return float(rows.distribution_of(text).to_internal_repr(value))
