"""Schedule functions run in workers alone: none ends a run, or outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from tensorlang.tuner import Progress, tune
from tensorlang.tuner.workers import client, process

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="looks for processes in /proc"
)
SHAPE = [(1 << 12,)]

EXPECTED = {
    "endless": ("hung", "not done after 2 s, still being scheduled"),
    "sleeps": ("hung", "not done after 2 s, still being scheduled"),
    "eats": ("failed", "its schedule takes more than"),
    "exits": ("crashed", "ended with code 3 while being scheduled"),
    "aborts": ("crashed", "killed by SIGABRT while being scheduled"),
    "kills_itself": ("lost", "killed by SIGKILL while being scheduled"),
    "falls_silent": ("crashed", "the worker closed its pipes while being scheduled"),
    "falls_asleep": ("lost", "the worker was suspended while being scheduled"),
    "closes": ("crashed", "ended with code 1 while being scheduled"),
}
HARMLESS = ("prints", "forks", "daemon", "leaves")


FORKED = """
import sys
from tensorlang import targets
from tensorlang.ops import find
from tensorlang.tuner.workers.protocol import Candidate
from tensorlang.tuner.workers.worker import Session

op = find(sys.argv[1])
workload, host = op.workload((4096,), dtypes="u32"), targets.host()
request = {"operator": sys.argv[1], "workload": workload.to_json(), "target": host.name}
session = Session(request, lambda _: None, lambda _: {"value": "forks"})
session._built(Candidate("direct", {"way": "forks"}), workload)
print("built", flush=True)
session.schedule("direct")
print("scheduled", flush=True)
"""


def living(mark: Path) -> list[int]:
    """Processes that a test's folder marks, by their arguments or environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            told = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if os.fsencode(mark) in told and state != "Z":
            found.append(int(folder.name))
    return sorted({*found} - {os.getpid()})


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def ended(mark: Path) -> bool:
    return wait_until(lambda: not living(mark), 5.0)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little time."""
    monkeypatch.setattr(client, "_SCHEDULE_SECONDS", 2.0)
    monkeypatch.setattr(process, "_END_SECONDS", 2.0)
    monkeypatch.setattr(process, "_PAUSES", (0.0, 0.0, 0.0))


def tuned(
    name: str, storage: str, tmp_path: Path, best: Collection[str]
) -> tuple[dict[str, Any], list[int]]:
    """The outcome of each way, and the number of processes after each."""
    seen: dict[str, Any] = {}
    counts = []

    def listen(progress: Progress) -> None:
        assert progress.last is not None
        candidate, outcome = progress.last
        seen[str(candidate.knobs.get("way"))] = outcome
        counts.append(len(living(tmp_path)))

    (report,) = tune(
        name, shapes=SHAPE, dtypes="u32", budget=300, storage=storage, listen=listen
    )
    assert report.best.knobs["way"] in best, report.note
    assert report.record is not None
    assert ended(tmp_path)
    return seen, counts


@pytest.mark.long
def test_a_schedule_that_ends_its_process_costs_itself_alone(
    user_operator: Callable[..., str], storage: str, tmp_path: Path
) -> None:
    name = user_operator("slow", *EXPECTED, "fast")
    seen, _ = tuned(name, storage, tmp_path, {"fast"})
    assert seen.keys() == {"slow", *EXPECTED, "fast"}
    for way, (status, reason) in EXPECTED.items():
        assert (way, seen[way].status) == (way, status)
        assert reason in seen[way].reason
        assert "\n" not in seen[way].reason


@pytest.mark.long
def test_what_a_schedule_prints_and_starts_ends_before_the_next_candidate(
    user_operator: Callable[..., str],
    storage: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    name = user_operator("slow", *HARMLESS, "fast")
    seen, counts = tuned(name, storage, tmp_path, {*HARMLESS, "fast"})
    assert {way: seen[way].status for way in seen} == dict.fromkeys(seen, "ok")
    assert counts == [3] * len(counts)  # a worker, its guard and the guard's
    assert capfd.readouterr().out == ""


def test_what_a_schedule_forks_does_not_go_on_as_the_worker_does(
    user_operator: Callable[..., str],
) -> None:
    command = [sys.executable, "-c", FORKED, user_operator("slow", "forks")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split() == ["built", "scheduled"]


@pytest.mark.long
def test_nothing_outlives_a_tuner_that_is_killed(
    user_operator: Callable[..., str], storage: str, tmp_path: Path
) -> None:
    script = (
        "import sys; from tensorlang.tuner import tune; op, storage = sys.argv[1:]; "
        f"tune(op, storage=storage, shapes={SHAPE}, dtypes='u32', budget=300, "
        "listen=lambda _: print('told', flush=True))"
    )
    name = user_operator("slow", "lingers")
    told = subprocess.Popen(
        [sys.executable, "-c", script, name, storage],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert told.stdout is not None
    with told:
        told.stdout.readline()
        wait_until(lambda: len(living(tmp_path)) == 4)  # the last is the daemon
        told.send_signal(signal.SIGKILL)
    assert ended(tmp_path)


def test_a_default_that_never_ends_is_said(
    user_operator: Callable[..., str], storage: str
) -> None:
    with pytest.raises(Exception, match=r"itself hung: not done after 2 s") as error:
        tune(
            user_operator("endless", "fast"), shapes=SHAPE, dtypes="u32", budget=60,
            storage=storage,
        )  # fmt: skip
    assert type(error.value).__name__ == "TuningError"
