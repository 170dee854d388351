"""A tuner that is killed, stopped or not alone loses nothing but the running trial."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tensorlang import records
from tensorlang.tuner.storage.storage import Trials

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="looks for processes in /proc"
)

# tunes in a process of its own, and tells each trial and the report in lines of JSON
SCRIPT = """
import json, sys
from tensorlang.tuner import tune

def say(**what):
    print(json.dumps(what), flush=True)

def listen(p):
    say(way=p.last[0].knobs["way"], status=p.last[1].status, seconds=p.last[1].seconds)

options = json.loads(sys.argv[1])
options["shapes"] = [tuple(shape) for shape in options["shapes"]]
(report,) = tune(**options, dtypes="u32", listen=listen)
say(best=report.best.knobs["way"], trials=report.trials, record=bool(report.record),
    interrupted=report.interrupted)
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a tuner as a process group of its own."""
    started: list[subprocess.Popen[str]] = []
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)

    def run(name: str, storage: str, **options: Any) -> subprocess.Popen[str]:
        given = {"op": name, "storage": storage, "shapes": [[1 << 14]]} | options
        started.append(
            subprocess.Popen(
                [sys.executable, str(script), json.dumps(given)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def workers(tmp_path: Path) -> list[int]:
    """The worker processes of this test, known by their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            command = (folder / "cmdline").read_bytes()
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue
        if b"tensorlang.tuner.workers" in command and str(tmp_path).encode() in (
            environment
        ):
            found.append(int(folder.name))
    return found


def until(condition: Callable[[], object], seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def told(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()]


def first(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The first trial that is told."""
    assert process.stdout is not None
    line: dict[str, Any] = json.loads(process.stdout.readline())
    return line


WAYS = ("slow", "forever", "wrong", "unwritten", "illegal", "fast")


@pytest.mark.long
def test_killed_and_started_again_it_goes_on_from_where_it_was(
    user_operator: Callable[..., str],
    start: Callable[..., subprocess.Popen[str]],
    storage: str,
    tmp_path: Path,
) -> None:
    name = user_operator(*WAYS)
    killed = start(name, storage, budget=600, limit=300)
    before = [first(killed)]
    assert until(lambda: workers(tmp_path))
    while before[-1]["way"] != "forever" and len(before) < len(WAYS):
        # every other one is told; the endless one is being run when nothing comes
        ready = _readable(killed, 4)
        if not ready:
            break
        before.append(first(killed))
    tried = {line["way"] for line in before}
    assert "forever" not in tried
    killed.send_signal(signal.SIGKILL)
    rest, _ = killed.communicate()
    tried |= {json.loads(line)["way"] for line in rest.splitlines()}
    assert until(lambda: not workers(tmp_path), 20), "a worker outlived its tuner"

    again = told(start(name, storage, budget=600, limit=2))
    *after, report = again
    assert not tried & {line["way"] for line in after}, "measured a second time"
    assert tried | {line["way"] for line in after} == set(WAYS)
    assert report["best"] == "fast"
    assert report["trials"] == len(WAYS)


def _readable(process: subprocess.Popen[str], seconds: float) -> bool:
    import select

    assert process.stdout is not None
    return bool(select.select([process.stdout], [], [], seconds)[0])


@pytest.mark.long
@pytest.mark.parametrize("whom", ["the tuner", "its process group"])
def test_stopped_it_reports_the_best_so_far_and_keeps_the_trials(
    whom: str,
    user_operator: Callable[..., str],
    start: Callable[..., subprocess.Popen[str]],
    storage: str,
    tmp_path: Path,
) -> None:
    name = user_operator("slow", "forever", "fast")
    process = start(name, storage, budget=600, limit=300)
    tried = [first(process)]
    while _readable(process, 4):
        tried.append(first(process))
    send = os.kill if whom == "the tuner" else os.killpg
    send(process.pid, signal.SIGINT)
    *rest, report = told(process)
    tried += rest
    assert report["interrupted"]
    assert report["trials"] == len(tried)
    fastest = min((line["seconds"], line["way"]) for line in tried)[1]
    assert report["best"] == fastest
    assert not workers(tmp_path)
    again = told(start(name, storage, budget=600, limit=2))
    assert not {line["way"] for line in tried} & {line["way"] for line in again[:-1]}
    assert again[-1]["best"] == "fast"


def test_stopped_before_anything_was_measured_it_is_an_interruption(
    user_operator: Callable[..., str],
    start: Callable[..., subprocess.Popen[str]],
    storage: str,
    tmp_path: Path,
) -> None:
    process = start(user_operator("forever", "fast"), storage, budget=600, limit=300)
    assert until(lambda: workers(tmp_path))
    time.sleep(3)  # let it come to the first candidate
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert out == ""
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert not workers(tmp_path)


@pytest.mark.long
def test_two_tuners_share_a_database_and_a_record_file(
    user_operator: Callable[..., str],
    start: Callable[..., subprocess.Popen[str]],
    storage: str,
) -> None:
    name = user_operator("slow", "wrong", "unwritten", "illegal", "raises", "fast")
    shapes = [[1 << 14]], [[1 << 13]]
    both = [start(name, storage, budget=600, shapes=shape) for shape in shapes]
    reports = [told(process)[-1] for process in both]
    assert [report["best"] for report in reports] == ["fast", "fast"]
    (file,) = records.all_files(records.user_folder())
    held = json.loads(file.read_text())["records"]
    assert sorted(r["workload"]["shapes"] for r in held) == [[[1 << 13]], [[1 << 14]]]
    assert _rows(storage) == 12


def _rows(storage: str) -> int:
    from sqlalchemy import text

    engine = Trials(storage, "another")._engine
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT count(*) FROM trials")).scalar_one())


@pytest.mark.long
def test_two_tuners_of_one_study_lose_no_trial(
    user_operator: Callable[..., str],
    start: Callable[..., subprocess.Popen[str]],
    storage: str,
) -> None:
    name = user_operator("slow", "wrong", "unwritten", "illegal", "raises", "fast")
    both = [start(name, storage, budget=600, seed=seed) for seed in (0, 1)]
    lines = [told(process) for process in both]
    assert [each[-1]["best"] for each in lines] == ["fast", "fast"]
    assert _rows(storage) == sum(len(each) - 1 for each in lines)
