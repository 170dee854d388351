"""Storage of trials: an Optuna storage, by default a SQLite file of the user.

Finished trials are written in one transaction each, with a write-ahead log: `kill -9`
loses at most the running trial, and the same command resumes. A storage that cannot be
reached for a while gets them later; see `spool`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from tensorlang import lazy
from tensorlang.errors import RecordError, TuningError
from tensorlang.tuner.storage import rows, spool
from tensorlang.tuner.storage.rows import Row

if TYPE_CHECKING:
    import sqlite3

    import filelock
    import optuna
    import platformdirs
    import sqlalchemy

else:  # slow to import
    platformdirs = lazy.module("platformdirs")
    filelock = lazy.module("filelock")
    optuna = lazy.module("optuna")
    sqlalchemy = lazy.module("sqlalchemy")

_FILE: Final = "tuning.db"
_SQLITE: Final = "sqlite:///"
_SECONDS_TO_WAIT: Final = 30
_WRITE_WAIT: Final = 3  # seconds for a locked database before a trial is kept
_PAUSE: Final = 5.0  # seconds until a storage that failed is tried again
_LONGEST_NAME: Final = 500
# everything between the user's name and the last @; secret query parameters
_PASSWORD: Final = re.compile(r"(?:(?<=://)|^(?!.*://))([^/:@]*):(.*)@")
_SECRET: Final = re.compile(
    r"(?<=[?&])(\w*(?:pass|pwd|secret|token|key)\w*)=([^&\s]+)", re.IGNORECASE
)


def default_url() -> str:
    """The SQLite file in the user's data directory.

    Raises:
        RecordError: the directory cannot be created.
    """
    return f"{_SQLITE}{platformdirs.user_data_path('tensorlang') / _FILE}"


def redacted(url: str) -> str:
    """A storage URL without its password, for printing."""
    return _SECRET.sub(r"\1=***", _PASSWORD.sub(r"\1:***@", url))


def _secrets(url: str) -> set[str]:
    found = {match[2] for match in _PASSWORD.finditer(url)}
    found |= {match[2] for match in _SECRET.finditer(url)}
    return {text for secret in found for text in (secret, unquote(secret)) if text}


class Trials:
    """The trials of one study.

    Args:
        url: An Optuna storage URL, such as `sqlite:///trials.db`.
        study: The study's name; long ones are cut.

    Attributes:
        trouble: Why the storage could not take the last trial; else empty.

    Raises:
        RecordError: the database cannot be used; the message names it.
        TuningError: invalid URL, or no driver for it is installed.
    """

    def __init__(self, url: str, study: str) -> None:
        self._url = url
        with _named(url), _alone(url):
            storage = _opened(url)
            self._engine = storage.engine
            self._name = study[:_LONGEST_NAME]
            self._study = _study_id(storage, self._name)
        self.trouble = ""
        self._held: list[Row] = []
        self._again = 0.0  # when a storage that failed is tried again
        self._deliver()

    @staticmethod
    def counts(url: str) -> dict[str, int]:
        """The number of trials of each study of a storage."""
        with _named(url), _alone(url):
            storage = _opened(url)
            try:
                summaries = optuna.get_all_study_summaries(storage)
                return {found.study_name: found.n_trials for found in summaries}
            finally:
                storage.engine.dispose()

    def finished(self) -> Iterator[Row]:
        """Earlier trials, oldest first."""
        with _named(self._url):
            yield from rows.read(self._engine, self._study)

    def add(self, row: Row) -> None:
        """Add a trial; one that the storage cannot take is kept, and added later."""
        if self.trouble and time.monotonic() < self._again:
            self._keep([row])
            return
        self._held.append(row)
        self._deliver()

    def _deliver(self) -> None:
        """Add the trials that were kept."""
        waiting = [*spool.take(self._url, self._name), *self._held]
        self._held, done = [], 0
        try:
            with _named(self._url):
                for row in waiting:
                    rows.write(self._engine, self._study, row)
                    done += 1
            self.trouble = ""
        except RecordError as problem:
            self.trouble = str(problem)
            self._again = time.monotonic() + _PAUSE
            self._keep(waiting[done:])

    def _keep(self, waiting: list[Row]) -> None:
        if spool.keep(self._url, self._name, waiting) is None:
            self._held += waiting

    def close(self) -> None:
        """Deliver what was kept, if possible, and close the database."""
        if self.trouble:
            self._deliver()
        self._engine.dispose()


@contextmanager
def _named(url: str) -> Iterator[None]:
    """Context that turns database errors into messages without the password."""
    shown = redacted(url)
    try:
        yield
    except ImportError as problem:
        raise TuningError(
            f"storage {shown} needs a driver that is not installed: "
            f"{_first(problem, url)}"
        ) from None
    except (sqlalchemy.exc.ArgumentError, ValueError) as problem:
        raise TuningError(
            f"storage {shown!r} is not a database URL such as sqlite:///trials.db: "
            f"{_first(problem, url)}"
        ) from None
    except (
        sqlalchemy.exc.SQLAlchemyError,
        optuna.exceptions.OptunaError,
        RuntimeError,
        AssertionError,
        OSError,
    ) as problem:
        raise RecordError(
            f"storage {shown} cannot be used: {_first(problem, url)}; repair or remove "
            "it, or name another with --storage"
        ) from None


def _first(problem: Exception, url: str) -> str:
    """The root cause in a line, without secrets."""
    root: BaseException = problem
    while root.__cause__ is not None:
        root = root.__cause__
    said = str(root) or type(root).__name__
    for secret in _secrets(url):
        said = said.replace(secret, "***")
    return said.splitlines()[0].rstrip(".")


def _file(url: str) -> Path | None:
    """The SQLite file of a URL."""
    named = url.startswith(_SQLITE) and not url.endswith((":memory:", _SQLITE))
    return Path(url.removeprefix(_SQLITE).partition("?")[0]) if named else None


def _alone(url: str) -> AbstractContextManager[object]:
    """Lock a SQLite file, as concurrent creation of its tables would fail."""
    path = _file(url)
    if path is None:
        return nullcontext()
    path.parent.mkdir(parents=True, exist_ok=True)
    return filelock.FileLock(f"{path}.lock", timeout=_SECONDS_TO_WAIT)


def _opened(url: str) -> optuna.storages.RDBStorage:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if _file(url) is None:
        return optuna.storages.RDBStorage(url)
    options = {"connect_args": {"timeout": _SECONDS_TO_WAIT}}
    storage = optuna.storages.RDBStorage(url, engine_kwargs=options)

    @sqlalchemy.event.listens_for(storage.engine, "connect")
    def write_ahead(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute(f"PRAGMA busy_timeout={1000 * _WRITE_WAIT}")

    storage.engine.dispose()
    return storage


def _study_id(storage: optuna.storages.RDBStorage, name: str) -> int:
    optuna.create_study(
        storage=storage, study_name=name, direction="minimize", load_if_exists=True
    )
    return int(storage.get_study_id_from_name(name))
