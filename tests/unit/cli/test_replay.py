"""`tlang replay`: searches of the storage and of files."""

from __future__ import annotations

import pytest

from tensorlang import targets
from tensorlang.ops import find
from tensorlang.scheduling.knobs import Choice
from tensorlang.tuner.landscapes import landscape
from tensorlang.tuner.storage.rows import Row, parameter
from tensorlang.tuner.storage.storage import Trials
from tensorlang.tuner.tuning_run import Run
from tensorlang.tuner.workers.protocol import OK, Candidate, Outcome

LANES = Choice((4, 8, 16, 32))


def row(lanes):
    named = {parameter("direct", "lanes", LANES): (LANES, lanes)}
    outcome = Outcome(OK, "", 1e-6 * (1 + abs(lanes - 8)))
    return Row.of(Candidate("direct", {"lanes": lanes}), outcome, named)


@pytest.fixture
def url(tmp_path):
    """A storage with a search of `math.add`."""
    op, here = find("math.add"), targets.host()
    workload = op.workload((64, 3), (3,), dtypes="f32", threads=here.threads)
    url = f"sqlite:///{tmp_path / 'trials.db'}"
    trials = Trials(url, Run(op, workload, here).study)
    for lanes in LANES.options:
        trials.add(row(lanes))
    trials.close()
    return url


def test_a_search_of_the_storage_is_replayed(tlang, url, tmp_path):
    asked = ("math.add", "--shape", "64x3,3", "--dtype", "f32", "--storage", url)
    said = tlang("replay", *asked, "--sampler", "random,tpe", "--seeds", 3)
    assert said.exit_code == 0, said.output
    lines = said.stdout.splitlines()
    assert lines[0].startswith("math.add(f32[64, 3], f32[3]) on ")
    assert "4 configurations, 4 of them timed; the best 1 us" in said.stdout
    assert lines[-1].split() == ["4", "1.00x", "1.00x"]
    assert "trials  random  tpe" in said.stdout
    file = tmp_path / "search.jsonl"
    said = tlang("replay", *asked, "--to", file)
    assert f"written to {file}" in said.stdout
    assert "trials" not in said.stdout
    assert landscape.read(file).workload == find("math.add").workload(
        (64, 3), (3,), dtypes="f32", threads=targets.host().threads
    )
    again = tlang("replay", file, "--trials", 2)
    assert again.stdout.splitlines()[-1].split()[0] == "2"


def test_what_cannot_be_replayed_is_said_in_a_sentence(tlang, url, tmp_path):
    file = tmp_path / "x.jsonl"
    file.write_text("hello")
    for asked, said in {
        ("math.add", "--shape", "9,9", "--storage", url): "was not tuned on",
        (file,): "holds no search that can be read",
        (file, "--shape", "3"): "is a file: leave out what names a workload",
        ("nothing",): "no operator is called 'nothing'",
        ("nothing.jsonl",): "there is no file nothing.jsonl",
    }.items():
        result = tlang("replay", *asked)
        assert result.exit_code == 2
        assert said in result.stderr
        assert result.stderr.count("\n") == 1
