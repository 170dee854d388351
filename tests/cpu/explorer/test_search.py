"""The search on a page: its history, what each knob did, and failures with reasons."""

from __future__ import annotations

from dataclasses import replace

import pytest
from typer.testing import CliRunner

from tensorlang import records
from tensorlang.cli import options
from tensorlang.cli.app import app
from tensorlang.explorer.page import page
from tensorlang.explorer.search import search_of
from tensorlang.scheduling.knobs import Choice
from tensorlang.targets import host
from tensorlang.tuner.landscapes import landscape as landscapes
from tensorlang.tuner.landscapes.landscape import Landscape
from tensorlang.tuner.storage import databases
from tensorlang.tuner.storage.rows import Row, parameter
from tensorlang.tuner.storage.storage import Trials
from tensorlang.tuner.storage.studies import About
from tensorlang.tuner.tuning_run import Run
from tensorlang.tuner.workers.protocol import Candidate, Outcome

HOSTILE = '</script><b>\u202e & "no"'
LANES = Choice((8, 16, 32))
TIMES = {8: 4e-6, 16: 1e-6, 32: 2e-6}


def row(lanes, outcome, **others):
    knobs = {"lanes": lanes, **others}
    named = {
        parameter("direct", name, LANES if name == "lanes" else Choice((value,))): (
            LANES if name == "lanes" else Choice((value,)),
            value,
        )
        for name, value in knobs.items()
    }
    return Row.of(Candidate("direct", knobs), outcome, named)


def timed():
    yield from (row(n, Outcome("ok", seconds=s)) for n, s in TIMES.items())


def failed():
    yield row(8, Outcome("wrong", HOSTILE), chunk=1)
    yield row(16, Outcome("wrong", HOSTILE), chunk=1)
    yield row(32, Outcome("crashed"), chunk=1)


def test_history_effects_and_failures():
    found = search_of(Landscape.of("f", "here", [*timed(), *failed()]), {"lanes": 1.0})
    assert found.trials == {"ok": 3, "wrong": 2, "crashed": 1}
    assert found.best == ("direct(lanes=16)", 1e-6)
    (effect,) = found.effects
    assert effect.values == [("16", 1.0, 1), ("32", 2.0, 1), ("8", 4.0, 1)]
    assert effect.importance == 1.0
    assert list(found.reasons) == [
        "fastest of 3 timed: direct(lanes=16)",
        "second: lanes=32, 2.00× its time",
        "with lanes=32 instead of 16 at best 2.00×",
    ]
    assert found.failures == [
        (f"wrong: {HOSTILE}", 2, "direct(lanes=8, chunk=1)"),
        ("crashed", 1, "direct(lanes=32, chunk=1)"),
    ]
    history = found.history
    assert (history.ends, history.count) == ((4e-6, 1e-6), 6)
    assert history.best == [(0.0, 0.0), (60.0, 160.0), (300, 160.0)]
    assert len(history.failures) == 3


def test_a_search_of_one_trial_or_of_thousands():
    alone = search_of(Landscape.of("f", "", [next(timed())]), {})
    assert alone.history.best == [(0.0, 160.0), (300, 160.0)]
    assert alone.effects == []
    assert list(alone.reasons) == ["fastest of 1 timed: direct(lanes=8)"]
    many = [row(n, Outcome("ok", seconds=1e-6 * (n + 1))) for n in range(5000)]
    found = search_of(Landscape.of("f", "", many), {})
    assert len(found.history.dots) <= 1500
    assert len(found.effects[0].values) + found.effects[0].left_out == 5000


def test_a_page_has_the_search_escaped(subject):
    found = search_of(Landscape.of(HOSTILE, "", [*timed(), *failed()]), {})
    made = subject("softmax", "8x100")
    text = page(made, None, found)
    assert 'data-stage="search"' in text
    assert HOSTILE not in text
    assert "wrong: &lt;/script&gt;" in text
    assert (
        "<dt>search</dt><dd><bdi>fastest of 3 timed: direct(lanes=16); second" in text
    )
    assert 'id="search"' not in page(made)


@pytest.fixture
def storage(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'trials.db'}"
    monkeypatch.setattr(databases, "default_url", lambda: url)
    monkeypatch.setenv("TENSORLANG_RECORDS", str(tmp_path / "records"))
    records.forget()
    yield url
    records.forget()


def explored(tmp_path, *args):
    file = tmp_path / "page.html"
    words = ["explore", "bits", "--shape", "4096", "-o", str(file), *args]
    result = CliRunner().invoke(app, words)
    return result, file.read_text("utf-8") if file.exists() else ""


def test_the_search_of_this_machine_is_found(storage, tmp_path):
    result, text = explored(tmp_path)
    assert result.exit_code == 0, result.stderr
    assert 'id="search"' not in text
    assert not (tmp_path / "trials.db").exists()
    op, here = options.operator("bits"), host()
    workload = options.workload(op, "4096")
    run = Run(op, replace(workload, threads=here.threads), here)
    trials = Trials(storage, run.study, About(run.workload, here.fingerprint))
    try:
        for each in timed():
            trials.add(each)
    finally:
        trials.close()
    result, text = explored(tmp_path)
    assert result.exit_code == 0, result.stderr
    assert "3 trials: 3 ok" in text


def test_a_file_has_a_search_too(storage, tmp_path):
    del storage
    file = tmp_path / "rows.jsonl"
    landscapes.write(Landscape.of("elsewhere", "b", timed()), file)
    result, text = explored(tmp_path, "--search", str(file))
    assert result.exit_code == 0, result.stderr
    assert "elsewhere on b" in text
    result, _ = explored(tmp_path, "--search", str(tmp_path / "nothing.jsonl"))
    assert result.exit_code == 2
