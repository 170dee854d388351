"""Files that Kernel Tuner itself writes and reads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorlang.scheduling.knobs import Choice
from tensorlang.tuner.landscapes import landscape, replay
from tensorlang.tuner.landscapes.landscape import Landscape
from tensorlang.tuner.storage.rows import Row, parameter
from tensorlang.tuner.workers.protocol import CRASHED, ILLEGAL, OK, Candidate, Outcome

theirs = pytest.importorskip(
    "kernel_tuner", reason="needs Kernel Tuner: pip install 'tensorlang[kernel-tuner]'"
)
files = pytest.importorskip("kernel_tuner.file_utils", reason="needs Kernel Tuner")

SOURCE = """
#include <chrono>
extern "C" float add(float *c, float *a, float *b, int n) {
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < n; i += step) c[i] = a[i] + b[i];
    std::chrono::duration<float, std::milli> took =
        std::chrono::steady_clock::now() - start;
    return took.count();
}
"""
KNOBS = {"step": [1, 2, 4, 8], "mode": ["plain", "odd"]}


@pytest.fixture
def tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What Kernel Tuner measured, and left in `cache.json` and `results.json`."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    monkeypatch.chdir(tmp_path)  # where it writes temporary files
    source = SOURCE + "".join(f"// {name}\n" for name in KNOBS)
    a, size = np.ones(100000, np.float32), np.int32(100000)
    options = {"lang": "C", "compiler": "g++", "block_size_names": ["unused"]}
    found, _ = theirs.tune_kernel(
        "add", source, 100000, [a.copy(), a, a, size], KNOBS,
        cache="cache.json", quiet=True, **options,
    )  # fmt: skip
    files.store_output_file("results.json", found, KNOBS)
    return list(found)


def test_what_kernel_tuner_writes_is_read(
    tuned: list[dict[str, Any]], tmp_path: Path
) -> None:
    best = min(tuned, key=lambda each: each["time"])
    for name in ("cache.json", "results.json"):
        found = landscape.read(tmp_path / name)
        assert len(found.rows) == len(tuned) == 8
        assert found.best.candidate.knobs == {knob: best[knob] for knob in KNOBS}
        assert found.best.outcome.seconds == pytest.approx(best["time"] / 1e3)
        assert found.best.outcome.spent["build"] > 0
    assert landscape.read(tmp_path / "cache.json").name == "add"


@pytest.mark.usefixtures("tuned")
def test_a_failure_in_its_cache_is_one(tmp_path: Path) -> None:
    cache = tmp_path / "cache.json"
    held = theirs.util.read_cache(cache)  # which opens it for more entries
    error = theirs.util.RuntimeFailedConfig()
    entry = {"step": 16, "mode": "odd", "time": error, "__error__": error}
    theirs.util.store_cache("16,odd", entry, cache, held["cache"])
    assert cache.read_text().endswith(",")
    *_, last = landscape.read(cache).rows
    assert last.outcome.status == CRASHED
    assert last.candidate.knobs == {"step": 16, "mode": "odd"}  # not a value of before
    found = landscape.read(cache)
    course = replay.replay(found, replay.sampler("random", found), seed=1)
    assert course.best[-1] == found.best.outcome.seconds


def searched() -> Landscape:
    """Two algorithms with different knobs, one of them refused for some."""
    lanes = Choice((4, 8, 16))
    rows = [Row.of(Candidate("whole"), Outcome(OK, "", 3e-3), {})]
    for value in (4, 8, 16):
        refused = Outcome(ILLEGAL, "too wide")
        outcome = refused if value == 16 else Outcome(OK, "", 1e-3 * value)
        named = {parameter("direct", "lanes", lanes): (lanes, value)}
        rows.append(Row.of(Candidate("direct", {"lanes": value}), outcome, named))
    return Landscape.of("nn.test", "some CPU", rows)


def test_kernel_tuner_simulates_what_we_write(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ours.json"
    landscape.write(searched(), path)
    found, told = theirs.tune_cache(str(path))
    capfd.readouterr()
    assert told["device_name"] == "some CPU"
    best = theirs.util.get_best_config(found, "time")
    assert (best["algorithm"], best["lanes"]) == ("whole", None)
    assert best["time"] == pytest.approx(3.0)
    assert len(found) == 3  # without what was refused


def test_the_t4_results_that_we_write_fit_its_schema(tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema")
    path = tmp_path / "ours.t4.json"
    landscape.write(searched(), path)
    _, schema = files.output_file_schema("results")
    jsonschema.validate(json.loads(path.read_text()), schema)
