"""Where trials are kept: rows there and back, and URLs without secrets."""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import optuna
import pytest
from sqlalchemy import event, inspect

from tensorlang.errors import RecordError, TuningError
from tensorlang.scheduling.knobs import Choice, Integer
from tensorlang.tuner.storage import databases, spool, storage, studies, tables
from tensorlang.tuner.storage.databases import default_url, redacted
from tensorlang.tuner.storage.rows import Row, parameter
from tensorlang.tuner.storage.spool import Told
from tensorlang.tuner.storage.storage import Trials
from tensorlang.tuner.workers.protocol import LOST, OK, WRONG, Candidate, Outcome

LANES = Choice((8, 16, 32))
CHUNK = Integer(1, 64, log=True)


def row(number: int = 0, status: str = OK) -> Row:
    knobs = {"lanes": (8, 16, 32)[number % 3], "chunk": 1 + number % 64, "n": number}
    outcome = Outcome(status, "" if status == OK else "bad", 1e-3 + number, ir="ab")
    domains = {
        parameter("direct", "lanes", LANES): (LANES, knobs["lanes"]),
        parameter("direct", "chunk", CHUNK): (CHUNK, knobs["chunk"]),
    }
    return Row.of(Candidate("direct", knobs), outcome, domains)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'trials.db'}"


def test_rows_come_back_equal_and_in_order(url: str) -> None:
    trials = Trials(url, "study")
    rows = [row(0), row(1, WRONG), row(2)]
    for one in rows:
        trials.add(one)
    assert list(trials.finished()) == rows
    assert list(Trials(url, "study").finished()) == rows
    assert list(Trials(url, "another study").finished()) == []


def test_optuna_reads_them_as_its_own(url: str) -> None:
    trials = Trials(url, "study")
    for number in range(5):
        trials.add(row(number, WRONG if number == 3 else OK))
    study = optuna.load_study(study_name="study", storage=url)
    assert [trial.number for trial in study.trials] == [0, 1, 2, 3, 4]
    assert study.best_trial.number == 0
    assert study.best_value == 1e-3
    states = [trial.state.name for trial in study.trials]
    assert states == ["COMPLETE"] * 3 + ["PRUNED", "COMPLETE"]
    assert study.trials[1].params == {
        "direct.lanes: one of 8, 16, 32": 16,
        "direct.chunk: an integer from 1 to 64": 2,
    }
    assert study.trials[1].distributions == row(1).frozen().distributions


def test_what_is_not_ours_or_not_whole_is_passed_over(url: str) -> None:
    trials = Trials(url, "study")
    trials.add(row(0))
    study = optuna.load_study(study_name="study", storage=url)
    for note in ({}, {"tensorlang": "[1, 2"}, {"tensorlang": 7}, {"other": "x"}):
        study.add_trial(optuna.create_trial(value=1.0, user_attrs=note))
    trials.add(row(1))
    assert list(trials.finished()) == [row(0), row(1)]


def test_writers_at_once_lose_nothing(url: str) -> None:
    def write(first: int) -> None:
        trials = Trials(url, "study")
        for number in range(first, first + 25):
            trials.add(row(number))

    threads = [threading.Thread(target=write, args=(25 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    held = list(Trials(url, "study").finished())
    assert sorted(one.candidate.knobs["n"] for one in held) == list(range(100))
    study = optuna.load_study(study_name="study", storage=url)
    assert sorted(trial.number for trial in study.trials) == list(range(100))


def test_a_transaction_is_a_handful_of_statements(url: str) -> None:
    """Bookkeeping stays within milliseconds because it stays within few statements."""
    trials = Trials(url, "study")
    trials.add(row(0))
    assert len(trials.news()) == 1
    statements: list[str] = []

    @event.listens_for(trials._engine, "before_cursor_execute")
    def count(_c: object, _k: object, statement: str, *_: object) -> None:
        statements.append(statement)

    assert trials.claim(row(1))
    assert len(statements) == 5  # the lock, what is new, and rows of three tables
    statements.clear()
    trials.hold(row(1))
    assert not statements
    trials.deliver()
    assert len(statements) == 5  # what a trial and its claim have in five tables
    assert trials.news() == [row(1)]
    assert len(statements) == 6
    statements.clear()
    trials.add(row(2))
    assert len(statements) == 6  # the lock, what is new, and rows of four tables
    statements.clear()
    assert trials.news() == [row(2)]
    assert len(list(trials.finished())) == 3
    assert len(statements) == 2


def test_trials_are_read_again_only_after_others_wrote(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = Trials(url, "study"), Trials(url, "study")
    assert one.news() == other.news() == []
    read = Mock(side_effect=tables.read)
    monkeypatch.setattr(tables, "read", read)
    for number in range(3):
        claimed = replace(row(number).outcome, status=LOST, ir=f"code {number}")
        assert one.claim(replace(row(number), outcome=claimed))
        one.add(row(number))
        assert one.news() == [row(number)]  # an own one
    assert not read.called
    assert other.news() == [row(0), row(1), row(2)]
    other.add(row(3))
    assert one.news() == [row(3)]
    assert read.called
    study = optuna.load_study(study_name="study", storage=url)
    assert [trial.number for trial in study.trials] == [0, 1, 2, 3]


def test_what_is_not_stored_yet_is_still_claimed(url: str) -> None:
    one, other = Trials(url, "study"), Trials(url, "study")
    assert one.claim(row(0))
    one.hold(row(0))
    assert one.claim(row(1))
    assert not other.claim(row(0))
    assert other.news() == []
    one.close()
    assert other.news() == [row(0)]
    assert other.claim(row(1))


def test_a_claim_that_was_rolled_back_is_no_trial(url: str) -> None:
    trials = Trials(url, "study")

    def full(_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    event.listen(trials._engine, "commit", full)
    for number in range(2):
        trials._again = 0.0
        assert trials.claim(row(number))  # nobody can say whether it is free
    event.remove(trials._engine, "commit", full)
    trials._again = 0.0
    for number in range(2):
        trials.hold(row(number))
    trials.deliver()
    assert list(trials.finished()) == [row(0), row(1)]


def test_of_a_large_study_the_fastest_and_the_latest_are_read(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def coded(number: int, status: str = OK) -> Row:
        made = row(number, status)
        return replace(made, outcome=replace(made.outcome, ir=f"code {number}"))

    first = Trials(url, "study")
    for number in range(30):
        first.add(coded(number, OK if number else WRONG))
    monkeypatch.setattr(tables, "SOME", 5)
    assert first.claim(coded(30))
    late = Trials(url, "study")
    assert late.news() == [coded(n) for n in (1, 2, 3, 4, 5, 26, 27, 28, 29)]
    assert late.unread == 21
    assert late.claimed() == [coded(30)]
    assert not late.claim(coded(17))
    assert late.news() == [coded(17)]
    assert late.unread == 20
    assert not late.claim(coded(0))
    assert late.news() == [coded(0, WRONG)]
    assert not late.claim(coded(30))
    assert late.claim(coded(31))
    first.add(coded(30))
    assert late.news() == [coded(30)]
    assert len(list(late.finished())) == 31


def test_codes_and_the_trials_of_a_study_have_an_index(url: str) -> None:
    engine = Trials(url, "study")._engine
    for name, table in (("codes", "trial_user_attributes"), ("trials", "trials")):
        indices = [index["name"] for index in inspect(engine).get_indexes(table)]
        assert f"tensorlang_{name}" in indices
    asked: list[tuple[str, Any]] = []

    @event.listens_for(engine, "before_cursor_execute")
    def note(_c: object, _k: object, statement: str, given: Any, *_: object) -> None:
        asked.append((statement, given))

    with engine.connect() as connection:
        assert tables.told(connection, 1, "code") is None
        statement, given = asked[0]
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", given)
        assert "INDEX tensorlang_codes" in str(plan.all())


@pytest.mark.parametrize("left", range(1, 8))
def test_tables_of_a_tuner_that_was_killed_amid_them_are_completed(
    tmp_path: Path, left: int
) -> None:
    """SQLite commits each step: without its index a study would be made twice."""
    url = f"sqlite:///{tmp_path / 'trials.db'}"
    Trials(url, "before").close()
    with contextlib.closing(sqlite3.connect(tmp_path / "trials.db")) as whole:
        found = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"
        steps = [said for (said,) in whole.execute(found)]
    url = f"sqlite:///{tmp_path / 'cut.db'}"
    with contextlib.closing(sqlite3.connect(tmp_path / "cut.db")) as cut:
        for step in steps[:left]:
            cut.execute(step)
        cut.commit()
    for number in range(2):
        trials = Trials(url, "study")
        trials.add(row(number))
        trials.close()
    assert len(list(Trials(url, "study").finished())) == 2
    assert studies.by_name(url)["study"].finished == 2


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///a/b.db", "sqlite:///a/b.db"),
        ("sqlite:////a:b@c/b.db", "sqlite:////a:b@c/b.db"),
        ("me:secret@host/db", "me:***@host/db"),
        ("postgresql://me:secret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:p@ss:w/rd@host/db", "postgresql://me:***@host/db"),
        ("mysql+pymysql://:secret@host/db", "mysql+pymysql://:***@host/db"),
        (
            "postgresql://host/db?user=me&password=secret&x=1",
            "postgresql://host/db?user=me&password=***&x=1",
        ),
        ("postgresql://host/db?sslpassword=se", "postgresql://host/db?sslpassword=***"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert redacted(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:s3cr%40t@host/db",
        "postgresql://host/db?password=s3cr%40t",
        "nonsense://me:s3cr%40t@host/db",
        "me:s3cr%40t@host",
    ],
)
def test_no_error_tells_a_password(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_PASSES", 0.0)
    with pytest.raises((TuningError, RecordError)) as caught:
        Trials(url, "study")
    said = str(caught.value)
    assert "s3cr" not in said
    assert "\n" not in said


@pytest.mark.parametrize(
    "call", [databases.resolved, databases.identity, studies.every]
)
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite:///x.db?uri=maybe", "is not a database URL such as .*: .*'maybe'"),
        ("sqlite:///file::memory:?uri=true", "names no file"),
        ("sqlite:///file:x?mode=memory&cache=shared&uri=true", "names no file"),
        ("sqlite:///file:?uri=true", "names no file"),
    ],
)
def test_every_caller_refuses_a_url_that_is_wrong(
    call: Callable[[str], object], url: str, said: str, spooled: Path
) -> None:
    with pytest.raises(TuningError, match=f"^storage .*{said}"):
        call(url)
    with pytest.raises(TuningError, match=f"^storage .*{said}"):
        Trials(url, "study")
    with pytest.raises(TuningError, match=f"^storage .*{said}"):
        spool.keep(url, "study", Told(row(), -1))
    assert not spooled.exists() or not list(spooled.iterdir())


def test_a_missing_driver_is_named() -> None:
    with pytest.raises(TuningError, match="needs a driver that is not installed"):
        Trials("mssql+pyodbc://me:word@host/db", "study")


def test_a_folder_in_place_of_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=f"{tmp_path} cannot be used"):
        Trials(f"sqlite:///{tmp_path}", "study")


def test_a_missing_folder_is_named_and_not_made(tmp_path: Path) -> None:
    missing = f"sqlite:///{tmp_path}/typo/trials.db"
    said = f"{missing} cannot be used: there is no folder {tmp_path}/typo; make it"
    with pytest.raises(RecordError, match=said):
        Trials(missing, "study")
    assert not list(tmp_path.iterdir())


def test_a_file_has_the_name_that_sqlalchemy_gives_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a%20b.db"
    Trials(url, "study").add(row())
    assert (tmp_path / "a b.db").exists()
    assert (tmp_path / "a b.db.lock").exists()
    assert [study.name for study in studies.every(url)] == ["study"]


@pytest.mark.parametrize(
    "form",
    [
        "sqlite+pysqlite:///{}.db",
        "sqlite:///file:{}.db?uri=true",
        "sqlite:///file://{}.db?mode=rwc&uri=true",
        "sqlite+pysqlite:///file:{}%2520d.db?uri=true",
    ],
)
def test_every_form_of_a_url_is_of_one_file(form: str, tmp_path: Path) -> None:
    url = form.format(tmp_path / "trials")
    Trials(url, "study").add(row())
    (file,) = tmp_path.glob("*.db")
    assert (tmp_path / f"{file.name}.lock").exists()
    plain = f"sqlite:///{file}"
    assert list(Trials(plain, "study").finished()) == [row()]
    assert databases.identity(url) == databases.identity(plain)
    assert databases.identity(databases.resolved(url)) == databases.identity(url)
    assert len(studies.every(url)) == 1
    Trials(databases.resolved(url), "study").close()
    file.rename(tmp_path / "kept")
    with pytest.raises(RecordError, match=f"there is no {file}"):
        studies.every(url)


@pytest.mark.parametrize("others", [[], [7]])
def test_a_file_that_is_removed_is_made_again_with_the_trials_of_this_run(
    others: list[int], url: str, tmp_path: Path
) -> None:
    trials = Trials(url, "study")
    trials.add(row(0))
    claimed = replace(row(1).outcome, status=LOST, ir="code 1")
    assert trials.claim(replace(row(1), outcome=claimed))
    for file in tmp_path.iterdir():
        file.unlink()
    if others:
        other = Trials(url, "study")
        for number in others:
            other.add(row(number))
    trials.add(row(1))
    trials.add(row(2))
    trials.close()
    assert trials.trouble == ""
    held = list(Trials(url, "study").finished())
    known = [0, 1, 2, *others]
    assert sorted(one.candidate.knobs["n"] for one in held) == known


def test_without_its_folder_trials_are_kept(spooled: Path, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    trials = Trials(f"sqlite:///{folder}/trials.db", "study")
    trials.add(row(0))
    shutil.rmtree(folder)
    trials.add(row(1))
    trials.close()
    assert f"there is no folder {folder}" in trials.trouble
    assert len(list(spooled.glob("*/*.json"))) == 2
    folder.mkdir()
    held = list(Trials(f"sqlite:///{folder}/trials.db", "study").finished())
    assert sorted(one.candidate.knobs["n"] for one in held) == [0, 1]


def test_what_only_reads_makes_no_file(tmp_path: Path) -> None:
    missing = f"sqlite:///{tmp_path}/typo.db"
    said = f"{missing} cannot be used: there is no {tmp_path}/typo.db"
    with pytest.raises(RecordError, match=said), databases.opened(missing):
        pass
    assert studies.by_name(missing) == {}
    assert not list(tmp_path.iterdir())


def test_the_default_is_a_file_of_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_url() == f"sqlite:///{tmp_path}/tensorlang/tuning.db"
    Trials(default_url(), "study").add(row())
    assert (tmp_path / "tensorlang" / "tuning.db").exists()


def test_the_default_may_be_in_a_folder_of_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "link"))
    Trials(default_url(), "study").add(row())
    assert (tmp_path / "data" / "tensorlang" / "tuning.db").exists()


@pytest.mark.parametrize("folder", ["d%20x", "d?y", "d #z"])
def test_the_default_may_have_special_characters(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / folder))
    Trials(default_url(), "study").add(row())
    assert (tmp_path / folder / "tensorlang" / "tuning.db").exists()


def test_a_relative_path_is_that_of_its_folder(
    spooled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "one")
    assert spool.keep("sqlite:///trials.db", "study", Told(row(0), -1))
    assert len(spool.kept(f"sqlite:///{tmp_path}/one/trials.db", "study")) == 1
    monkeypatch.chdir(tmp_path / "other")
    assert spool.kept("sqlite:///trials.db", "study") == []
    assert len(list(spooled.glob("*/*.json"))) == 1


def test_a_run_keeps_its_file_when_the_working_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "one")
    trials = Trials("sqlite:///trials.db", "study")
    trials.add(row(0))
    monkeypatch.chdir(tmp_path / "other")
    trials.add(row(1))
    trials.close()
    assert not list(Path.cwd().iterdir())
    url = f"sqlite:///{tmp_path}/one/trials.db"
    assert list(Trials(url, "study").finished()) == [row(0), row(1)]


def test_a_long_name_of_a_study_is_cut_and_found_again(url: str) -> None:
    Trials(url, "x" * 2000).add(row())
    assert list(Trials(url, "x" * 2000).finished()) == [row()]


@pytest.fixture
def spooled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of undelivered trials, of the test's own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(spool.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    monkeypatch.setattr(databases, "_BEGIN", {"sqlite": ("PRAGMA busy_timeout=50",)})
    return tmp_path / "data" / "tensorlang" / "undelivered"


def test_a_locked_database_gets_its_trials_later(url: str, spooled: Path) -> None:
    trials = Trials(url, "study")
    trials.add(row(0))
    other = sqlite3.connect(url.removeprefix("sqlite:///"))
    other.execute("BEGIN IMMEDIATE")
    trials.add(row(1))
    assert "locked" in trials.trouble
    trials.add(row(2))  # does not wait for the database again
    assert len(list(spooled.glob("*/*.json"))) == 2
    other.rollback()
    other.close()
    trials._again = 0.0  # the pause is over
    trials.add(row(3))
    assert trials.trouble == ""
    assert list(trials.finished()) == [row(n) for n in range(4)]
    assert not list(spooled.glob("*/*.json"))


def test_a_tuner_that_starts_while_the_database_is_locked_goes_on(
    url: str, spooled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Trials(url, "study").add(row(0))
    monkeypatch.setattr(storage, "_reached", set())  # as in a new process
    other = sqlite3.connect(url.removeprefix("sqlite:///"))
    with monkeypatch.context() as patched:
        patched.setattr(databases, "_SECONDS_TO_WAIT", 0.05)
        other.execute("BEGIN IMMEDIATE")
        trials = Trials(url, "another study")
        assert "locked" in trials.trouble
        trials.add(row(1))
        assert len(list(spooled.glob("*/*.json"))) == 1
    other.close()
    trials._again = 0.0  # the pause is over
    assert trials.news() == [row(1)]
    assert trials.trouble == ""


def test_a_disk_that_is_full_at_the_start_is_waited_for(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, full = databases._opened, OSError(errno.ENOSPC, "No space left on device")
    fails = Mock(side_effect=full)
    monkeypatch.setattr(databases, "_opened", fails)

    def clears(_: float) -> None:
        if fails.call_count >= 6:
            monkeypatch.setattr(databases, "_opened", opened)

    monkeypatch.setattr(storage.time, "sleep", clears)
    trials = Trials(url, "study")
    trials.add(row(0))
    assert trials.news() == [row(0)]
    monkeypatch.setattr(databases, "_opened", fails)
    monkeypatch.setattr(storage, "_PASSES", 0.0)
    with pytest.raises(RecordError, match="No space left on device"):
        Trials(f"{url}2", "study")


def test_a_run_that_ends_first_leaves_them_to_the_next(url: str, spooled: Path) -> None:
    trials, elsewhere = Trials(url, "study"), Trials(url, "another study")
    other = sqlite3.connect(url.removeprefix("sqlite:///"))
    other.execute("BEGIN IMMEDIATE")
    trials.add(row(0))
    trials.add(row(1))
    trials.close()
    assert trials.trouble
    other.close()
    elsewhere.add(row(2))
    assert list(Trials(url, "another study").finished()) == [row(2)]
    again = Trials(url, "study")
    assert list(again.finished()) == [row(0), row(1)]
    assert list(Trials(url, "study").finished()) == [row(0), row(1)]
    assert not list(spooled.glob("*/*.json"))


def test_one_that_runs_delivers_what_another_left(url: str, spooled: Path) -> None:
    trials = Trials(url, "study")
    assert spool.keep(url, "study", Told(row(0), -1))
    trials._unread = 0.0  # the pause is over
    assert trials.news() == [row(0)]
    assert not list(spooled.glob("*/*.json"))


def test_a_full_disk_loses_no_trial(
    url: str, spooled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = Trials(url, "study")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(tables, "lock", full)
        patched.setattr(spool, "write_text", full)
        trials.add(row(0))
        trials.add(row(1))
        assert "No space left" in trials.trouble
        assert not list(spooled.glob("*/*.json"))
        patched.undo()
    trials.close()
    assert list(Trials(url, "study").finished()) == [row(0), row(1)]


def test_the_other_folder_is_used_where_the_first_takes_nothing(
    url: str, spooled: Path, tmp_path: Path
) -> None:
    spooled.parent.mkdir(parents=True)
    spooled.write_text("a file in place of the folder")
    assert spool.keep(url, "study", Told(row(0), 3))
    (kept,) = (tmp_path / "tmp").glob("*/*/*.json")
    (kept.parent / "broken.json").write_text("not a trial")
    assert spool.kept(url, "study") == [Told(row(0), 3, kept, tried=True)]
    assert spool.kept(url, "another study") == []


KILLED = """
import os, pickle, signal, sys
from pathlib import Path
from tensorlang.tuner.storage import tables
from tensorlang.tuner.storage.storage import Trials

url, step = sys.argv[1:]
row = pickle.loads(sys.stdin.buffer.read())
trials = Trials(url, "study")
lock, add, unlink = tables.lock, tables.add, Path.unlink

def full(*_, **__):
    raise OSError("No space left on device")

def killed(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def added(*given):
    add(*given)
    killed()

def removed(*given, **named):
    unlink(*given, **named)
    killed()

tables.lock = full
trials.add(row)
tables.lock, trials._again = lock, 0.0
if step == "kept":
    killed()
if step == "added":
    tables.add = added
Path.unlink = {"stored": killed, "removed": removed}.get(step, unlink)
trials.deliver()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a process by SIGKILL")
@pytest.mark.parametrize("step", ["kept", "added", "stored", "removed"])
def test_a_kill_at_any_step_neither_loses_a_trial_nor_stores_it_twice(
    url: str, spooled: Path, step: str
) -> None:
    Trials(url, "study").add(row(1))
    done = subprocess.run(
        [sys.executable, "-c", KILLED, url, step],
        input=pickle.dumps(row(0)),
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert bool(list(spooled.glob("*/*.json"))) == (step != "removed")
    again = Trials(url, "study")
    assert list(again.finished()) == [row(1), row(0)]
    assert not list(spooled.glob("*/*.json"))


def test_a_commit_without_an_answer_stores_a_trial_once(
    url: str, spooled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del spooled
    trials, commit = Trials(url, "study"), Trials._transaction

    def unanswered(trials: Trials, action: Any) -> Any:
        commit(trials, action)
        monkeypatch.setattr(Trials, "_transaction", commit)
        raise RecordError("the connection was lost")

    monkeypatch.setattr(Trials, "_transaction", unanswered)
    trials.add(row(0))
    assert list(trials.finished()) == [row(0)]
    assert trials.news() == [row(0)]


def test_a_trial_is_noted_after_an_interruption(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = Trials(url, "study")
    trials.add(row(0))

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Trials, "_added", interrupted)
        with pytest.raises(KeyboardInterrupt):
            trials.add(row(1))
    trials.add(row(2))
    assert trials.news() == [row(0), row(1), row(2)]
    study = optuna.load_study(study_name="study", storage=url)
    assert [trial.number for trial in study.trials] == [0, 1, 2]


def test_tuners_that_see_nothing_of_each_other_share_the_candidates(
    url: str, spooled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del spooled
    tuners = [Trials(url, "study") for _ in range(3)]
    candidates = [row(number).candidate for number in range(10, 100)]
    for number, trials in enumerate(tuners):
        assert trials.share(candidates[0])
        held = row(number, LOST)
        named = replace(held.outcome, reason=f"tuner {number}", ir=f"code {number}")
        assert trials.claim(replace(held, outcome=named))
    late = Trials(url, "study")  # has not claimed anything
    for trials in (*tuners, late):
        trials.news()
    other = sqlite3.connect(url.removeprefix("sqlite:///"))
    other.execute("BEGIN EXCLUSIVE")
    for number, trials in enumerate(tuners):
        trials.add(row(number))
        assert trials.trouble
        assert trials.blind
    counts = [sum(map(trials.share, candidates)) for trials in tuners]
    assert sum(counts) == len(candidates)
    assert min(counts) > 10
    late.add(row(3))
    assert late.blind
    assert not any(map(late.share, candidates))  # the others have not seen it
    other.close()
    for trials in tuners:
        trials._again = 0.0
        trials.news()
        assert not trials.trouble
    assert [sum(map(trials.share, candidates)) for trials in tuners] == counts
    monkeypatch.setattr(storage, "GRACE", 0.0)
    for trials in tuners:
        trials._settled = 0.0  # all have delivered
        assert all(map(trials.share, candidates))
