"""Databases of trials: Optuna's storages, by URL; by default a SQLite file of the user.

SQLite keeps a write-ahead log: `kill -9` loses at most the running trial. PostgreSQL
ends the transactions of tuners that stopped in the middle of one.
"""

from __future__ import annotations

import logging
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from tensorlang import lazy
from tensorlang.errors import RecordError, TuningError
from tensorlang.gc_pause import gc_paused
from tensorlang.tuner import disk_space
from tensorlang.tuner.storage import tables

with lazy.modules(__name__):  # slow to import
    import filelock
    import optuna
    import platformdirs
    import sqlalchemy
    from psycopg import pq

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine
    from sqlalchemy.engine.interfaces import DBAPIConnection

ABOUT: Final = "tensorlang"  # the key of what is kept with a study
_FILE: Final = "tuning.db"
_SQLITE: Final = "sqlite:///"
_POSTGRESQL: Final = "postgresql://"
# SQLite's without a file: `sqlite://`, `sqlite+pysqlite:///:memory:`, `..?mode=memory`
_IN_MEMORY: Final = re.compile(
    r"sqlite(\+\w+)?:/{2,3}(\?.*|(file:)?:memory:.*|[^?]*\?(.*&)?mode=memory(&.*)?)?"
)
_SECONDS_TO_WAIT: Final = 30
_MAGIC: Final = b"SQLite format 3\0"  # what its files begin with
_WRITE_WAIT: Final = 3  # seconds for a locked database before a trial is kept
CONNECT_WAIT: Final = 5  # seconds for a server's answer
_TABLES: Final = 7_305_808_868  # the advisory lock of whoever creates the tables
# everything between the user's name and the last @; secret query parameters
_PASSWORD: Final = re.compile(r"(?:(?<=://)|^(?!.*://))([^/:@]*):(.*)@")
_SECRET: Final = re.compile(
    r"(?<=[?&])(\w*(?:pass|pwd|secret|token|key)\w*)=([^&\s]+)", re.IGNORECASE
)


class Passing(RecordError):  # noqa: N818 - an event, after which it is tried again
    """It may pass: a full disk, or a server that does not answer."""


class Away(Passing):
    """The database is there, but locked, starting or stopping."""


class Missing(RecordError):  # noqa: N818 - what is found, not a fault
    """There is no such file, or an empty one: nothing was stored in it."""


_KINDS: Final[Mapping[int, type[RecordError]]] = {
    sqlite3.SQLITE_BUSY: Away,
    sqlite3.SQLITE_LOCKED: Away,
    sqlite3.SQLITE_FULL: Passing,
    sqlite3.SQLITE_IOERR: Passing,
}


def default_file() -> Path:
    """The SQLite file in the user's data."""
    return platformdirs.user_data_path("tensorlang") / _FILE


def default_url() -> str:
    """The URL of the file in the user's data, whose special characters are escaped."""
    url = sqlalchemy.URL.create("sqlite", database=str(default_file()))
    return url.render_as_string(hide_password=False)


def is_in_memory(url: str) -> bool:
    """Whether a storage's URL names no file and no server: it ends with its process."""
    return _IN_MEMORY.fullmatch(url) is not None


def redacted(url: str) -> str:
    """A storage URL without its password, for printing."""
    return _SECRET.sub(r"\1=***", _PASSWORD.sub(r"\1:***@", url))


def _secrets(url: str) -> set[str]:
    found = {match[2] for match in _PASSWORD.finditer(url)}
    found |= {match[2] for match in _SECRET.finditer(url)}
    return {text for secret in found for text in (secret, unquote(secret)) if text}


@contextmanager
def named(url: str) -> Iterator[None]:
    """Context that turns database errors into messages without the password.

    Raises:
        RecordError: the database cannot be used; the message names it.
        TuningError: invalid URL, or no driver for it is installed.
    """
    shown = redacted(url)
    try:
        yield
    except (RecordError, TuningError):
        raise
    except ImportError as problem:
        raise TuningError(
            f"storage {shown} needs a driver that is not installed: "
            f"{_first(problem, url)}{_advice(url)}"
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
        path = _file(url)
        advice = (path and _full(path.parent)) or "repair or remove it, or name another"
        raise _kind(problem, url)(
            f"storage {shown} cannot be used: {_first(problem, url)}; {advice} with "
            "--storage"
        ) from None


def _full(folder: Path) -> str:
    """What to do where a folder takes no files for want of space; else empty."""
    refused = disk_space.refusal(folder)
    if refused is None or not disk_space.is_full(refused):
        return ""
    said = f"{folder} takes no files: {refused.strerror}"
    return f"{said}; free some space, or name a storage elsewhere"


def _root(problem: BaseException) -> BaseException:
    while problem.__cause__ is not None:
        problem = problem.__cause__
    return problem


def _kind(problem: Exception, url: str) -> type[RecordError]:
    root = _root(problem)
    if isinstance(root, sqlite3.Error):
        code = getattr(root, "sqlite_errorcode", 0) & 0xFF  # of an extended one
        return _KINDS.get(code, RecordError)
    if isinstance(root, filelock.Timeout):
        return Away
    if disk_space.is_full(root):
        return Passing
    if not _of_libpq(url) or not find_spec("psycopg"):
        return RecordError
    address = f"{_POSTGRESQL}{url.partition('://')[2]}"
    return Away if pq.PGconn.ping(address.encode()) == pq.Ping.REJECT else Passing


def _first(problem: Exception, url: str) -> str:
    """The root cause in a line, without secrets."""
    root = _root(problem)
    said = str(root) or type(root).__name__
    for secret in _secrets(url):
        said = said.replace(secret, "***")
    return said.splitlines()[0].rstrip(".")


def _advice(url: str) -> str:
    if not url.startswith(_POSTGRESQL):
        return ""
    return "; pip install tensorlang[postgresql] brings one"


def resolved(url: str) -> str:
    """A storage's URL with the whole path of its SQLite file, if it has one.

    Raises:
        TuningError: invalid URL, or a URL within it that names no file.
    """
    path = _file(url)
    if path is None:
        return url
    read, whole = sqlalchemy.make_url(url), path.resolve()
    named = read.set(database=whole.as_uri() if _is_uri(read) else str(whole))
    return named.render_as_string(hide_password=False)


@cache
def _file(url: str) -> Path | None:
    """The SQLite file of a URL; with `uri=true`, what it names may be a URL itself."""
    if not re.match(r"sqlite(\+\w+)?:", url):
        return None
    with named(url):
        read = sqlalchemy.make_url(url)
        is_uri = _is_uri(read)
    name = str(read.database)  # which decodes %20
    path = unquote(urlsplit(name).path) if is_uri else name
    if not is_in_memory(url) and path:
        return Path(path)
    if is_uri:  # SQLAlchemy may make a new database for each connection
        raise TuningError(
            f"storage {redacted(url)} names no file, so that nothing would be "
            "kept; give one, such as sqlite:///trials.db"
        )
    return None


def _is_uri(read: sqlalchemy.URL) -> bool:
    """Whether SQLite takes the name of the file for a URL."""
    asked = sqlalchemy.util.asbool(read.query.get("uri", "false"))
    return bool(asked) and str(read.database).startswith("file:")


def identity(url: str) -> tuple[int, int] | None:
    """What tells the SQLite file of a URL from others; None if there is none."""
    if (path := _file(url)) is not None:
        with suppress(OSError):
            told = path.stat()
            return told.st_dev, told.st_ino
    return None


@gc_paused()
def _opened(url: str) -> optuna.storages.RDBStorage:
    """A storage, whose tables are created if they are missing."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # we say it ourselves
    storage = optuna.storages.RDBStorage(url, engine_kwargs=_options(url))
    begin = _BEGIN.get(storage.engine.dialect.name, ())

    @sqlalchemy.event.listens_for(storage.engine, "connect")
    def set_up(connection: DBAPIConnection, _: object) -> None:
        cursor = connection.cursor()
        for statement in begin:
            cursor.execute(statement)
        cursor.close()
        connection.commit()

    if not is_in_memory(url):  # which its connection holds
        storage.engine.dispose()
    return storage


# what a connection begins with
_BEGIN: Final[Mapping[str, tuple[str, ...]]] = {
    "sqlite": (
        "PRAGMA journal_mode=WAL",
        "PRAGMA synchronous=NORMAL",
        f"PRAGMA busy_timeout={1000 * _WRITE_WAIT}",
    ),
    "postgresql": (
        f"SET lock_timeout = '{_SECONDS_TO_WAIT}s'",
        # of a tuner that was stopped, or whose machine is gone
        "SET idle_in_transaction_session_timeout = '5s'",
    ),
}


def _options(url: str) -> dict[str, object]:
    if _file(url) is not None:
        return {"connect_args": {"timeout": _SECONDS_TO_WAIT}}
    if not _of_libpq(url):
        return {}
    milliseconds = 1000 * _SECONDS_TO_WAIT
    waits = {"connect_timeout": CONNECT_WAIT, "tcp_user_timeout": milliseconds}
    return {"connect_args": waits}


def _of_libpq(url: str) -> bool:
    """Whether psycopg, 2 or 3, connects."""
    return url.startswith((_POSTGRESQL, "postgresql+psycopg"))


def _with_driver(url: str) -> str:
    """The URL with psycopg 3 as the driver, if it names none."""
    if url.startswith(_POSTGRESQL) and find_spec("psycopg"):
        return f"postgresql+psycopg://{url.removeprefix(_POSTGRESQL)}"
    return url


def _checked_folder(path: Path) -> None:
    """Make the folder of the default storage; another one must be there."""
    if path.resolve() == default_file().resolve():
        path.parent.mkdir(parents=True, exist_ok=True)
    elif not path.parent.exists():
        raise RecordError(
            f"storage {_SQLITE}{path} cannot be used: there is no folder "
            f"{path.parent}; make it first, or name another storage with --storage"
        )


@contextmanager
def _alone(url: str) -> Iterator[None]:
    """Exclude other tuners, as concurrent creation of tables would fail."""
    path = _file(url)
    if path is not None:
        _checked_folder(path)
        with filelock.FileLock(f"{path}.lock", timeout=_SECONDS_TO_WAIT):
            yield
    elif _of_libpq(url):
        engine = sqlalchemy.create_engine(url, **_options(url))
        try:
            with engine.connect() as connection:
                lock = sqlalchemy.func.pg_advisory_xact_lock(_TABLES)
                connection.execute(sqlalchemy.select(lock))
                yield
        finally:
            engine.dispose()
    else:
        yield


def connect(url: str, study: str, about: str = "") -> tuple[Engine, int]:
    """The engine of a database and the key of a study; both are made if missing.

    Args:
        url: The storage's URL.
        study: The study's name.
        about: What is tuned, which is kept with the study.
    """
    url = _with_driver(url)
    with _alone(url):
        storage = _opened(url)
        tables.index(storage.engine)  # without it, a study would be made twice
        optuna.create_study(
            storage=storage, study_name=study, direction="minimize", load_if_exists=True
        )
        key = int(storage.get_study_id_from_name(study))
        if about and ABOUT not in storage.get_study_user_attrs(key):
            storage.set_study_user_attr(key, ABOUT, about)
        return storage.engine, key


def _check_kind(path: Path, shown: str) -> None:
    """Refuse a file that is no SQLite database, before a lock is made beside it."""
    try:
        why = "" if path.stat().st_size else f"{path} is empty"
    except FileNotFoundError:
        why = f"there is no {path}"
    except NotADirectoryError:
        above = next(each for each in path.parents if each.exists())
        raise OSError(f"{above} is not a folder") from None
    if why:
        raise Missing(f"storage {shown} cannot be used: {why}")
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise OSError(f"{path} is not a database")


@contextmanager
def opened(url: str) -> Iterator[Engine]:
    """The engine of a database to read, whose file has to be there.

    Raises:
        Missing: it is not, or is empty.
        RecordError, TuningError: as `named`, also for what is done with it.
    """
    with named(url):
        whole = _with_driver(url)
        if (path := _file(whole)) is not None:
            _check_kind(path, redacted(url))
        with _alone(whole):
            engine = _opened(whole).engine
        try:
            yield engine
        finally:
            engine.dispose()
