"""Replaying a finished search, and the files it is kept in."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import optuna
import pytest

from tensorlang.errors import ArgumentError, TuningError
from tensorlang.scheduling.knobs import Choice, Integer
from tensorlang.tuner.landscapes import kernel_tuner as kernel_tuner_files
from tensorlang.tuner.landscapes import landscape, replay
from tensorlang.tuner.landscapes import plots as study_plots
from tensorlang.tuner.landscapes.landscape import Landscape
from tensorlang.tuner.storage.rows import Row, parameter
from tensorlang.tuner.workers.protocol import (
    CRASHED,
    FAILED,
    HUNG,
    ILLEGAL,
    OK,
    WRONG,
    Candidate,
    Outcome,
)
from tensorlang.workload import Workload

LANES, CHUNK = Choice((4, 8, 16)), Integer(1, 64, log=True)
WORKLOAD = Workload("math.add", ((64, 3), (3,)), ("f32", "f32"), (), 2)


def row(algorithm: str, outcome: Outcome, **knobs: Any) -> Row:
    domains = {"lanes": LANES, "chunk": CHUNK}
    named = {
        "algorithm": (Choice(("direct", "blocked")), algorithm),
        **{parameter(algorithm, k, domains[k]): (domains[k], knobs[k]) for k in knobs},
    }
    return Row.of(Candidate(algorithm, knobs), outcome, named)


def outcome_of(lanes: int, chunk: int) -> Outcome:
    if lanes == 16 and chunk > 32:
        return Outcome(ILLEGAL, "too many lanes")
    return Outcome(OK, "", 1e-3 * (1 + abs(lanes - 8) + abs(chunk - 16) / 8))


def searched(chunks: Iterable[int] = (1, 2, 4, 8, 16, 32, 64)) -> Landscape:
    rows = [
        row("direct", outcome_of(lanes, chunk), lanes=lanes, chunk=chunk)
        for lanes in LANES.options
        for chunk in chunks
    ]
    rows.append(row("blocked", Outcome(OK, "", 2e-3)))
    return Landscape.of("test.add", "here", rows, WORKLOAD)


def test_a_file_of_rows_reads_back_equal(tmp_path: Path) -> None:
    path = tmp_path / "search.jsonl"
    landscape.write(searched(), path)
    assert landscape.read(path) == searched()
    assert searched().best.candidate.knobs == {"lanes": 8, "chunk": 16}
    assert len(searched().of_best().rows) == 21


def test_the_last_trial_of_a_configuration_counts() -> None:
    lucky = row("blocked", Outcome(OK, "", 1e-9))
    found = Landscape.of("x", "", [lucky, *searched().rows])
    assert len(found.rows) == 22
    assert found.best.outcome.seconds == 1e-3
    with pytest.raises(TuningError, match="no configuration of this search was timed"):
        Landscape.of("x", "", [row("direct", Outcome(WRONG, "no"), lanes=4, chunk=1)])


@pytest.mark.parametrize("name", ["search.json", "search.t4.json"])
def test_files_of_kernel_tuner_keep_times_and_failures(
    tmp_path: Path, name: str
) -> None:
    landscape.write(searched(), tmp_path / name)
    found = landscape.read(tmp_path / name)
    assert found.workload is None
    before, after = searched().table(), found.table()
    assert after.columns.keys() == before.columns.keys()
    assert [settings for settings, _ in after.rows] == [s for s, _ in before.rows]
    for (_, one), (_, other) in zip(before.rows, after.rows, strict=True):
        assert other.status == one.status
        assert other.seconds == pytest.approx(one.seconds)


@pytest.mark.parametrize("status", [ILLEGAL, FAILED, CRASHED, HUNG, WRONG])
def test_t4_tells_all_failures_apart(status: str) -> None:
    table = searched().table()
    failed = Outcome(status, "because")
    table = kernel_tuner_files.Table("k", "d", (1,), table.columns, [
        (table.rows[0][0], failed), *table.rows[1:]
    ])  # fmt: skip
    read = kernel_tuner_files.read(kernel_tuner_files.to_t4(table), "k")
    assert read.rows[0][1].status == status
    cache = kernel_tuner_files.read(kernel_tuner_files.to_cache(table), "k")
    assert not cache.rows[0][1].ok


@pytest.mark.parametrize("name", ["search.json", "search.t4.json"])
def test_files_of_kernel_tuner_keep_names(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    landscape.write(searched().of_best(), path)
    found = landscape.read(path)
    assert (found.name, found.device) == ("test.add", "here")
    assert found.best.candidate == searched().best.candidate
    landscape.write(found, path)
    assert landscape.read(path) == found


def test_only_a_file_of_the_same_search_is_replaced(tmp_path: Path) -> None:
    path, cache = tmp_path / "search.jsonl", tmp_path / "search.t4.json"
    landscape.write(searched(), path)
    landscape.write(searched(), path)
    landscape.write(searched(), cache)
    for other, to in ((landscape.read(cache), path), (searched(), cache)):
        with pytest.raises(TuningError, match="is there, and does not tell that"):
            landscape.write(other, to)
    assert landscape.read(path) == searched()
    path.write_text("notes")
    with pytest.raises(TuningError, match="is there, and does not tell that"):
        landscape.write(searched(), path)


def test_a_cache_that_was_left_open_is_read(tmp_path: Path) -> None:
    path = tmp_path / "open.json"
    landscape.write(searched(), path)
    path.write_text(path.read_text().removesuffix("}\n}") + ",\n")
    assert len(landscape.read(path).rows) == len(searched().rows)


BROKEN = {
    "empty": "",
    "no JSON": "hello",
    "another object": '{"a": 1}',
    "a list": "[1, 2]",
    "no row": '{"format": "tensorlang search 1"}\nx\n',
    "no times": '{"results": [{"configuration": {"a": 1}, "invalidity": "correct", '
    '"times": {}, "measurements": [{"name": "time", "value": "x"}]}]}',
    "unknown status": '{"results": [{"configuration": {}, "invalidity": "odd"}]}',
    "no keys": '{"cache": {}}',
    "nothing": '{"cache": {}, "tune_params_keys": [], "tune_params": {}, '
    '"kernel_name": "k", "device_name": "d"}',
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_what_is_no_search_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(TuningError) as refusal:
        landscape.read(path)
    assert "\n" not in str(refusal.value)
    with pytest.raises(TuningError, match="No such file"):
        landscape.read(tmp_path / "nowhere.json")
    with pytest.raises(TuningError, match=r"name it \.jsonl"):
        landscape.write(searched(), tmp_path / "x.txt")
    with pytest.raises(TuningError, match="there is no folder"):
        landscape.write(searched(), tmp_path / "typo" / "x.json")
    assert not (tmp_path / "typo").exists()


def _line(seconds: str, knob: str) -> str:
    """A file of rows with a time and a knob as given."""
    head = '{"format": "tensorlang search 1", "name": "x", "device": "y"'
    outcome = f'{{"status": "ok", "reason": "", "ir": "", "seconds": {seconds}'
    outcome += ', "spread": 0, "error": 0, "spent": {}}'
    return f'{head}, "workload": null}}\n["a", {{"k": {knob}}}, {outcome}, {{}}, {{}}]'


def _t4(*configurations: object) -> str:
    """T4 results of configurations that were timed."""
    timed = {"times": {}, "measurements": [{"name": "time", "value": 1.0}]}
    timed |= {"invalidity": "correct"}
    return json.dumps(
        {"results": [{"configuration": each, **timed} for each in configurations]}
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (_line('"fast"', "1"), "could not convert string to float"),
        (_line("NaN", "1"), "nan is no number of seconds"),
        (_line("1" + "0" * 400, "1"), "int too large"),
        (_line("1e-3", "[1]"), "a knob has no list or object as its value"),
        ("[" * 200_000, "it is nested too deeply"),
        ("[1, 2]", "a part of it is of another kind"),
        ('{"results": [{}]}', "it lacks 'invalidity'"),
        ('{"results": [{"invalidity": "odd"}]}', "'odd' is no invalidity"),
        ('{"results": 3}', "a part of it is of another kind"),
        ('{"results": [3]}', "a part of it is of another kind"),
        (_t4({"a": 1}, {}), r"configuration \{\} lacks a"),
        (_t4({"a": [1]}), "a part of it is of another kind"),
        (_t4(3), "a part of it is of another kind"),
    ],
)
def test_values_of_other_kinds_are_refused(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_text(text)
    with pytest.raises(TuningError, match=said):
        landscape.read(path)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("os:system", r"os:system\(seed=0\) fails with TypeError"),
        ("os:sep", "fails with TypeError"),
        ("builtins:dict", "is a dict, not one of Optuna's samplers"),
    ],
)
def test_what_makes_no_sampler_is_refused_by_name(name: str, said: str) -> None:
    make = replay.sampler(name, searched())
    with pytest.raises(ArgumentError, match=f"no sampler '{name}'.*{said}"):
        replay.replay(searched(), make)


@pytest.mark.parametrize("name", ["random", "tpe", "TPE", "optuna.samplers:QMCSampler"])
def test_samplers_find_the_best_of_a_whole_space(name: str) -> None:
    found = searched((1, 16, 64))
    course = replay.replay(found, replay.sampler(name, found), seed=3)
    assert course.best[-1] == found.best.outcome.seconds
    assert course.best == sorted(course.best, reverse=True)
    assert len(course.best) <= len(found.rows)


def test_a_whole_space_is_replayed_exactly() -> None:
    found = searched(range(1, 65))
    course = replay.replay(found, replay.sampler("tpe", found), trials=20)
    assert (len(course.best), course.near) == (20, 0)


def test_the_same_seed_replays_the_same_and_trials_end_it() -> None:
    found = searched()
    make = replay.sampler("tpe", found)
    one, same, other = (
        replay.replay(found, make, trials=9, seed=seed) for seed in (1, 1, 2)
    )
    assert one == same != other
    assert len(one.best) == 9


def test_what_was_not_measured_is_answered_by_the_nearest() -> None:
    found = searched((1, 60))
    recorded = replay.Recorded(found.rows)
    values = {
        "algorithm": "direct",
        parameter("direct", "lanes", LANES): 16,
        parameter("direct", "chunk", CHUNK): 10,  # nearer to 60 by its logarithm
    }
    answer, exact = recorded.answer(optuna.trial.FixedTrial(values))
    assert answer.candidate.knobs == {"lanes": 16, "chunk": 60}
    assert not exact
    course = replay.replay(found, replay.sampler("random", found), trials=5)
    assert 0 < course.near <= 5
    values[parameter("direct", "chunk", CHUNK)] = 1
    assert recorded.answer(optuna.trial.FixedTrial(values))[1]


def test_what_has_no_sampler_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"no sampler 'best'; there are model, "):
        replay.sampler("best", searched())
    with pytest.raises(ArgumentError, match="no sampler 'optuna:Nothing'"):
        replay.sampler("optuna:Nothing", searched())
    with pytest.raises(ArgumentError, match=r"needs the schedule's cost model"):
        replay.sampler("model", searched())  # not math.add's knobs
    alone = Landscape.of("x", "", searched().rows)
    with pytest.raises(ArgumentError, match="and x has none"):
        replay.sampler("model", alone)


def test_importances_are_shares_of_the_knobs_of_the_best_algorithm() -> None:
    shares = study_plots.importances(searched(range(1, 64, 2)))
    assert shares.keys() == {"lanes", "chunk"}
    assert sum(shares.values()) == pytest.approx(1)
    assert study_plots.importances(searched((1,))) == {}


def test_plots_are_drawn_by_optuna(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    drawn = study_plots.plot(searched(), tmp_path / "plots")
    assert [path.name for path in drawn] == ["history.png", "importance.png"]
    assert all(path.stat().st_size > 1000 for path in drawn)


def test_columns_hold_values_of_any_kind() -> None:
    kinds = Choice((None, "", "a", 2, True, 0.5))
    rows = []
    for value in kinds.options:
        named = {parameter("direct", "kind", kinds): (kinds, value)}
        candidate = Candidate("direct", {"kind": value})
        rows.append(Row.of(candidate, Outcome(OK, "", 1.0), named))
    (column,) = Landscape.of("x", "", rows).table().columns.values()
    assert column == (None, True, 0.5, 2, "", "a")


def test_rows_are_lines_of_json(tmp_path: Path) -> None:
    landscape.write(searched(), tmp_path / "x.jsonl")
    head, *lines = (tmp_path / "x.jsonl").read_text().splitlines()
    assert json.loads(head)["workload"]["operator"] == "math.add"
    assert len(lines) == 22
