"""`tlang studies`: searches listed, shown and exported."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tensorlang.cli.app import app
from tensorlang.scheduling.knobs import Choice
from tensorlang.tuner.landscapes import landscape
from tensorlang.tuner.storage.rows import Row, parameter
from tensorlang.tuner.storage.storage import Trials
from tensorlang.tuner.storage.studies import About, every, named
from tensorlang.tuner.workers.protocol import LOST, OK, WRONG, Candidate, Outcome
from tensorlang.workload import Workload

LANES = Choice((4, 8, 16))
WORKLOAD = Workload("math.add", ((64, 3), (3,)), ("f32", "f32"), (), 2)
EMPTY = Workload("math.add", ((0, 3), (3,)), ("f32", "f32"), (), 2)


def row(lanes: int, status: str = OK) -> Row:
    outcome = Outcome(status, "", lanes / 1e3, ir=f"code {lanes}")
    named = {parameter("direct", "lanes", LANES): (LANES, lanes)}
    return Row.of(Candidate("direct", {"lanes": lanes}), outcome, named)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A study with three trials and a claim, one without trials, one of others."""
    url = f"sqlite:///{tmp_path / 'trials.db'}"
    trials = Trials(url, "add here", About(WORKLOAD, "cpu-x"))
    for each in (row(8), row(4), row(16, WRONG)):
        trials.add(each)
    trials.claim(Row.of(Candidate("other"), Outcome(LOST, "", ir="x"), {}))
    Trials(url, "add there", About(EMPTY, "cpu-y"))
    Trials(url, "unknown")
    return url


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        app(list(arguments))
    return int(ended.value.code or 0)


def test_ls_has_a_line_for_each_study(url: str, capsys: Any) -> None:
    assert run("studies", "ls", "--storage", url) == 0
    out = capsys.readouterr().out
    assert all(said in out for said in ("cpu-x", "cpu-y", "unknown", "4 ms"))
    first, second, third = every(url)
    assert (first.finished, first.running, first.seconds) == (3, 1, 4e-3)
    assert (second.finished, second.running, second.seconds) == (0, 0, None)
    assert (first.about, third.about) == (About(WORKLOAD, "cpu-x"), None)


def test_ls_of_none_says_so_and_makes_nothing(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert run("studies", "ls") == 0
    assert "no studies in" in capsys.readouterr().out
    assert run("studies", "ls", "--storage", f"sqlite:///{tmp_path / 'typo.db'}") == 2
    assert f"there is no {tmp_path / 'typo.db'}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", [["ls"], ["show", "1"]])
def test_a_file_in_place_of_the_user_s_folder_is_an_error(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(file))
    assert run("studies", *command) == 2
    assert f"cannot be used: {file} is not a folder; " in capsys.readouterr().err


def test_ls_of_what_is_no_database_leaves_no_lock(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "notes.db"
    file.write_text("not a database at all")
    empty = tmp_path / "empty.db"
    empty.touch()
    refusals = {file: "not a database", tmp_path: "cannot be used", empty: "is empty"}
    for path, said in refusals.items():
        assert run("studies", "ls", "--storage", f"sqlite:///{path}") == 2
        assert said in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == [empty, file]
    assert not empty.stat().st_size
    assert not tmp_path.with_name(f"{tmp_path.name}.lock").exists()


def test_show_has_the_best_first_and_the_claims(url: str, capsys: Any) -> None:
    assert run("studies", "show", "1", "--storage", url) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "3 trials: 2 ok, 1 wrong" in out
    assert out.index("direct(lanes=4)") < out.index("direct(lanes=8)")
    assert re.search(r"claimed: other\(\), last heartbeat \d+ s ago$", out)
    assert run("studies", "show", "unknown", "--storage", url) == 0
    assert "0 trials" in capsys.readouterr().out


@pytest.mark.parametrize("file", ["x.jsonl", "x.json", "x.t4.json"])
def test_an_exported_study_is_replayed(url: str, tmp_path: Path, file: str) -> None:
    to = str(tmp_path / file)
    assert run("studies", "export", "add here", to, "--storage", url) == 0
    found = landscape.read(Path(to))
    assert [each.outcome.ok for each in found.rows] == [True, True, False]
    if file == "x.jsonl":
        assert found.rows == (row(8), row(4), row(16, WRONG))
        assert (found.workload, found.device) == (WORKLOAD, "cpu-x")
    assert run("replay", to, "--sampler", "random", "--seeds", "1") == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("show", "add"), "'add' is in the names of studies 1, 2; give a number"),
        (("show", "mul"), "no study 'mul'; tlang studies ls lists them"),
        (("export", "2", "x.jsonl"), "no configuration of this search was timed"),
        (("export", "1", "x.txt"), "name it .jsonl"),
    ],
)
def test_mistakes_are_one_sentence(
    url: str, arguments: tuple[str, ...], said: str, capsys: Any
) -> None:
    assert run("studies", *arguments, "--storage", url) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_study_is_found_by_its_whole_name_first(url: str) -> None:
    Trials(url, "add")
    assert named(url, "add").name == "add"
