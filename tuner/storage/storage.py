"""The trials of a study, shared by all tuners of it: told, claimed and read.

A trial is claimed before it is measured, so that no two tuners measure one code at
once. A claim has a heartbeat: that of a tuner that was killed is free again at once on
the same host, and after `GRACE` seconds elsewhere. Finished trials are written in one
transaction each. A storage that cannot be reached for a while gets them later (see
`spool`), each once; meanwhile, tuners go on without claims, each with its own share of
the candidates.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from tensorlang.errors import RecordError, TensorlangError
from tensorlang.tuner.storage import claimants, databases, spool, tables
from tensorlang.tuner.storage.rows import Row
from tensorlang.tuner.storage.spool import Told
from tensorlang.tuner.storage.studies import LONGEST_NAME, About, Reached
from tensorlang.tuner.storage.tables import Stored
from tensorlang.tuner.workers.protocol import Candidate

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Engine

T = TypeVar("T")

HEARTBEAT: Final = 10.0  # seconds between the heartbeats of a claim
GRACE: Final = 60.0  # seconds after the last one, until a claim is free again
_PAUSE: Final = 5.0  # seconds until what failed, here or elsewhere, is tried again
_PATIENCE: Final = 4.0  # multiple of the time that it took to fail
_LONGEST_PAUSE: Final = 15.0
# seconds until all tuners have delivered after an outage: they have tried once more
_SETTLING: Final = _LONGEST_PAUSE + databases.CONNECT_WAIT
_PASSES: Final = 10.0  # seconds until a server that never answered is an error
_LOOK: Final = 0.5  # seconds between two looks for it
_WRITES: Final = "tensorlang writes"  # the key of what a connection has read
_reached: set[str] = set()  # URLs: they are right, even if they fail later


class Trials:
    """The trials of one study.

    Args:
        url: An Optuna storage URL, such as `sqlite:///trials.db`; a relative path is of
            the working directory now, wherever that is later.
        study: The study's name; long ones are cut.
        about: What is tuned and where, which is kept with the study.

    Attributes:
        trouble: Why the storage could not be used the last time; else empty.
        unread: The number of finished trials that `news` leaves out: of a large study
            it has the fastest and the latest ones. The codes of all are known to
            `claim`.

    Raises:
        RecordError: the database cannot be used; the message names it.
        TuningError: invalid URL, or no driver for it is installed.
    """

    def __init__(self, url: str, study: str, about: About | None = None) -> None:
        self._url, self._name = databases.resolved(url), study[:LONGEST_NAME]
        self._about = about.to_json() if about else ""
        self._connected: tuple[Engine, int] | None = None
        self.trouble = ""
        self._problem = RecordError()  # the last one
        self.unread, self._partial = 0, False
        self._again = 0.0  # when a storage that failed is tried again
        self._lost = self._settled = 0.0  # when an outage began, and when it is over
        self._seen: dict[str, float] = {}  # when which tuner had a claim
        self._self = ""  # what this tuner is called in its claims
        self._held: list[Told] = []
        self._file: tuple[int, int] | None = None  # which SQLite file is connected
        self._stored: list[Row] = []  # own trials that it has
        self._unread = 0.0  # when there may be files, of this tuner or of others
        self._last, self._next = -1, 0  # the last key seen, the number that follows
        self._running: dict[int, Stored] = {}  # claims of others, by key
        self._sure = False  # whether all is known but what others do
        self._mine: dict[str, int] = {}  # keys of own claims, by candidate
        self._news: list[Row] = []
        self._closed = threading.Event()
        self._beating: threading.Thread | None = None
        self._reach()
        self.deliver()

    @property
    def _engine(self) -> Engine:
        return self._connect()[0]

    def finished(self) -> Iterator[Row]:
        """All trials with an outcome, oldest first.

        Raises:
            RecordError: the database cannot be used.
        """
        with databases.named(self._url):
            engine, study = self._connect()
            with engine.connect() as connection:
                found = tables.read(connection, study)
        for trial in found:
            if trial.row is not None and trial.told:
                yield trial.row

    def news(self) -> list[Row]:
        """Trials with an outcome that were not returned before, including own ones."""
        self._redeliver()
        self._try(self._read)
        found, self._news = self._news, []
        return found

    def claimed(self) -> list[Row]:
        """What other tuners measure, as of the last access."""
        mine = set(self._mine.values())
        return [
            trial.row
            for key, trial in self._running.items()
            if trial.row is not None and key not in mine and self._lives(trial)
        ]

    def _lives(self, trial: Stored) -> bool:
        """Whether a claim is this tuner's, or its tuner is not known to be dead."""
        return trial.id in self._mine.values() or _alive(trial)

    @property
    def blind(self) -> bool:
        """Whether it is not known what others do, for at most `GRACE` seconds."""
        now = time.monotonic()
        return now < self._lost + GRACE if self.trouble else now < self._settled

    def share(self, candidate: Candidate) -> bool:
        """Whether a candidate is not another tuner's while `blind`.

        Each candidate is one's of the tuners that were seen last, by rendezvous hashing
        (Thaler and Ravishankar, 1998), so that they agree without a word. A tuner that
        nobody can have seen leaves all to the others.
        """
        if not self.blind:
            return True
        names = {n for n, at in self._seen.items() if at > self._lost - GRACE}
        if not names:
            return True
        return max(names, key=partial(_weight, candidate.key)) == self._self

    def claim(self, row: Row) -> bool:
        """Claim the code of a trial, giving up an earlier claim without an outcome.

        False if another tuner has claimed it, or its outcome is or becomes news. A
        storage that cannot be reached does not hinder a claim. The outcome's reason
        names this tuner.
        """
        self._self = row.outcome.reason
        self._redeliver()
        claimed = self._try(partial(self._claim, row))
        if claimed:  # and stored: the key of one that was not is another trial's later
            self._mine = claimed
            self._seen[self._self] = time.monotonic()
            self._added(claimed[row.candidate.key])
        if self._beating is None:
            self._beating = threading.Thread(target=self._beat, daemon=True)
            self._beating.start()
        return claimed != {}

    def add(self, row: Row) -> None:
        """Add a trial; one that the storage cannot take is kept, and added later."""
        self.hold(row)
        self.deliver()

    def hold(self, row: Row) -> None:
        """Take a trial, which `deliver` or `close` adds; its claim holds until then."""
        mine = self._mine.get(row.candidate.key)
        self._held.append(Told(row, self._last if mine is None else mine - 1))

    def reach(self, *, whole: bool, won: bool) -> None:
        """Note how far the study is, if the storage can be reached.

        Args:
            whole: Whether the whole space was tried, and the best compared, or nothing
                more can be.
            won: Whether something replaces what was used before, or may do so.
        """
        self._try(partial(self._reach_to, whole, won))

    def close(self) -> None:
        """Deliver what was kept and release claims, if possible; close the database."""
        self._closed.set()
        if self._held or self.trouble:
            self._again = 0.0
            self.deliver()
        if self._mine:
            self._try(self._release)
        if self._connected is not None:
            self._connected[0].dispose()

    def _reach(self) -> None:
        """Connect; a database that is there, but cannot be used now, is an outage.

        A server may be restarting, and a full disk be cleared: it is tried for a while.

        Raises:
            RecordError, TuningError: it cannot be used.
        """
        ends = time.monotonic() + _PASSES
        while self._try(lambda _: True) is None and self._url not in _reached:
            if isinstance(self._problem, databases.Away):
                return
            passing = isinstance(self._problem, databases.Passing)
            if not passing or time.monotonic() >= ends:
                raise RecordError(self.trouble)
            time.sleep(_LOOK)
            self._again = 0.0

    def _connect(self) -> tuple[Engine, int]:
        if self._connected is None:
            self._connected = databases.connect(self._url, self._name, self._about)
            self._file = databases.identity(self._url)
            _reached.add(self._url)
        return self._connected

    def _try(self, action: Callable[[Connection], T]) -> T | None:
        """Run a transaction; None if the storage cannot be used now.

        The first failure may be of a connection alone, and is tried again at once.
        """
        begun = time.monotonic()
        if self.trouble and begun < self._again:
            return None
        for again in (False,) if self.trouble else (True, False):
            try:
                return self._transaction(action)
            except RecordError as problem:
                self._sure = False
                if again:
                    continue
                self._lost = self._lost if self.trouble else time.monotonic()
                self.trouble, self._problem = str(problem), problem
        now = time.monotonic()
        pause = max(_PAUSE, _PATIENCE * (now - begun))
        self._again = now + min(pause, _LONGEST_PAUSE)
        return None

    def _transaction(self, action: Callable[[Connection], T]) -> T:
        if self._connected and databases.identity(self._url) != self._file:
            self._begin_anew()
        with databases.named(self._url), self._connect()[0].begin() as connection:
            done = action(connection)
        if self.trouble:
            self.trouble, self._settled = "", time.monotonic() + _SETTLING
        return done

    def _begin_anew(self) -> None:
        """Leave a file that was removed or replaced, and tell own trials to the new."""
        self._engine.dispose()
        self._connected = None
        self._last, self._next, self._sure, self.unread = -1, 0, False, 0
        self._running, self._mine = {}, {}
        again = [Told(row, -1, tried=True) for row in self._stored]
        self._held, self._stored = [*again, *self._held], []
        self._unread = 0.0

    def _read(self, connection: Connection) -> None:
        """Take note of new trials, and of what became of claims.

        Own ones are known. Without claims of others, whose heartbeats may end, there is
        nothing to read unless somebody else wrote.
        """
        study = self._connect()[1]
        writes = tables.writes_of_others(connection)
        before, connection.info[_WRITES] = connection.info.get(_WRITES), None
        if self._sure and not self._running and writes == before is not None:
            connection.info[_WRITES] = writes
            return
        if self._last < 0:
            found, self.unread = tables.read_some(connection, study)
            self._partial = self.unread > 0
        else:
            found = tables.read(connection, study, self._last, self._running)
        for trial in found:
            self._running.pop(trial.id, None)
            if trial.running:
                self._running[trial.id] = trial
                if trial.row is not None and self._lives(trial):
                    self._seen[trial.row.outcome.reason] = time.monotonic()
            elif trial.row is not None and trial.told:
                self._news.append(trial.row)
            if trial.id > self._last:
                self._last, self._next = trial.id, trial.number + 1
        connection.info[_WRITES], self._sure = writes, True

    def _added(self, key: int) -> None:
        """Take note of an own trial, which was added after `_read` under `lock`."""
        self._last, self._next, self._sure = key, self._next + 1, True

    def _claim(self, row: Row, connection: Connection) -> dict[str, int]:
        """Own claims with a new one; empty if another tuner has it."""
        study = self._connect()[1]
        tables.lock(connection, study, lasting=False)
        self._read(connection)
        others = [*self.claimed(), *self._news]
        if any(other.outcome.ir == row.outcome.ir for other in others):
            return {}
        code = row.outcome.ir
        if self._partial and (told := tables.told(connection, study, code)) is not None:
            self._news.append(told)
            self.unread = max(self.unread - 1, 0)
            return {}
        running = self._running.items()
        free = [key for key, trial in running if not self._lives(trial)]
        ended = {told.row.candidate.key for told in self._held}
        mine = {name: key for name, key in self._mine.items() if name in ended}
        free += [key for name, key in self._mine.items() if name not in ended]
        if free:
            tables.release(connection, free)
        self._sure = False  # until it is noted, even if interrupted
        key = tables.claim(connection, study, self._next, row)
        return mine | {row.candidate.key: key}

    def _reach_to(self, whole: bool, won: bool, connection: Connection) -> None:
        study = self._connect()[1]
        tables.lock(connection, study)
        before = Reached.from_json(tables.reached(connection, study))
        at = before.won if before else 0
        reached = Reached(whole, tables.finished(connection, study) if won else at)
        tables.reach(connection, study, reached.to_json())

    def _release(self, connection: Connection) -> None:
        tables.release(connection, self._mine.values())

    def _tell(self, told: Told, connection: Connection) -> int:
        """Store a trial; its key if it was added, 0 for a claim, -1 if it was read."""
        mine = self._mine.get(told.row.candidate.key)
        if mine is not None and tables.finish(connection, mine, told.row):
            return 0
        study = self._connect()[1]
        tables.lock(connection, study)
        self._read(connection)
        tried, told.tried = told.tried, True
        if tried and tables.holds(connection, study, told.row, told.after):
            return -1
        self._sure = False  # until it is noted, even if interrupted
        return tables.add(connection, study, self._next, told.row)

    def _delivered(self, told: Told) -> bool:
        tell: Callable[[Connection], int] = partial(self._tell, told)
        if (added := self._try(tell)) is None:
            return False
        if added > 0:
            self._added(added)
        if added >= 0:
            self._news.append(told.row)
        self._mine.pop(told.row.candidate.key, None)
        self._stored.append(told.row)
        if told.file is not None:
            with suppress(OSError):
                told.file.unlink(missing_ok=True)
        return True

    def deliver(self) -> None:
        """Add the trials that are held, and those that were kept in files."""
        waiting, now = list(self._held), time.monotonic()
        if now >= self._unread and (not self.trouble or now >= self._again):
            waiting = [*spool.kept(self._url, self._name), *waiting]
            self._unread = now + _PAUSE
        for told in waiting:
            if not self._delivered(told):
                self._unread = 0.0
                if told.file is None and not spool.keep(self._url, self._name, told):
                    continue
            if told.file is None:
                self._held.remove(told)

    def _redeliver(self) -> None:
        """Deliver again after trouble, and now and then what other tuners kept."""
        if time.monotonic() >= self._unread:
            self.deliver()

    def _beat(self) -> None:
        """Renew the heartbeat of own claims until the end."""
        while not self._closed.wait(HEARTBEAT):
            connected, mine = self._connected, list(self._mine.values())
            if connected is None or not mine:
                continue
            with (
                suppress(TensorlangError),
                databases.named(self._url),
                connected[0].begin() as connection,
            ):
                tables.beat(connection, mine)


def _weight(candidate: str, tuner: str) -> bytes:
    return hashlib.sha256(f"{tuner} {candidate}".encode()).digest()


def _alive(trial: Stored) -> bool:
    """Whether a claim's heartbeat is recent, and its tuner is not known to be dead."""
    if trial.age is None or trial.age >= GRACE:
        return False
    return trial.row is None or not claimants.is_dead(trial.row.outcome.reason)
