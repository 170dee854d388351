"""Candidates that go wrong are filed with their reason, and the run goes on."""

from __future__ import annotations

import errno
import io
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from unittest.mock import Mock

import numpy as np
import pytest

from tensorlang import records, targets
from tensorlang.errors import ArgumentError, TuningError
from tensorlang.ops import find
from tensorlang.record_files import read as read_records
from tensorlang.tuner import (
    Progress,
    tune,
)
from tensorlang.tuner.search.search import Search, Suggestion
from tensorlang.tuner.workers import guard, process
from tensorlang.tuner.workers.client import Worker
from tensorlang.tuner.workers.protocol import Disturbed
from tensorlang.tuner.workers.worker import Session
from tensorlang.workload import Workload

SHAPE = [(1 << 14,)]

EXPECTED = {
    "segfault": ("crashed", "killed by SIGSEGV"),
    "forever": ("hung", "still being checked"),
    "wrong": ("wrong", "elements of y of"),
    "wrong_once": ("wrong", "1 of 2053 elements of y"),
    "unwritten": ("wrong", "1 of 2053 elements of y"),
    "past_the_end": ("crashed", "killed by SIGSEGV"),
    "before_the_start": ("wrong", "wrote outside of y, in front of it"),
    "reads_past_the_end": ("crashed", "killed by SIGSEGV"),
    "reads_before": ("crashed", "killed by SIGSEGV"),
    "too_much_stack": ("illegal", "800000 bytes of a thread's stack"),
    "does_not_build": ("failed", "bound to block.x"),
    "surely_past_the_end": ("failed", "comes to"),
    "illegal": ("illegal", "no loop 'no_such_loop'"),
    "raises": ("failed", "ZeroDivisionError: a mistake of the user's"),
}


@pytest.mark.long
def test_every_kind_of_bad_candidate_is_filed_and_the_good_one_is_found(
    user_operator: Callable[..., str], storage: str
) -> None:
    name = user_operator("slow", *EXPECTED, "fast")
    seen: dict[str, Any] = {}

    def listen(progress: Progress) -> None:
        assert progress.last is not None
        candidate, outcome = progress.last
        seen[candidate.knobs["way"]] = outcome

    (report,) = tune(
        name, shapes=SHAPE, dtypes="u32", budget=300, limit=2, storage=storage,
        listen=listen,
    )  # fmt: skip
    for way, (status, reason) in EXPECTED.items():
        assert (seen[way].status, way) == (status, way)
        assert reason in seen[way].reason, way
    assert report.best.knobs == {"way": "fast"}
    assert report.ratio is not None
    assert report.ratio.low > 1
    assert report.exhausted
    assert report.trials == len(EXPECTED) + 2
    assert sum(report.counts.values()) == report.trials
    assert sum(report.reasons.values()) == len(EXPECTED)
    for line in report.reasons:
        assert "\n" not in line
        assert "Traceback" not in line
    assert len(report.reasons) < len(EXPECTED)  # a line a kind, not a candidate

    # what was filed answers the same command: nothing is built or measured again
    again: list[Progress] = []
    (second,) = tune(
        name, shapes=SHAPE, dtypes="u32", budget=300, limit=2, storage=storage,
        listen=again.append,
    )  # fmt: skip
    assert again == []
    assert (second.trials, second.best) == (report.trials, report.best)
    assert "build" not in second.spent

    # and calls run what won
    double = find(name)
    x = np.arange(1 << 14, dtype=np.uint32)
    assert (double(x) == 2 * x).all()
    assert double.kernel(x).artifact.knobs == {"way": "fast"}


def test_a_default_that_is_not_right_is_said(
    user_operator: Callable[..., str], storage: str
) -> None:
    name = user_operator("wrong", "fast")
    with pytest.raises(TuningError, match=r"default configuration .* is itself wrong"):
        tune(name, shapes=SHAPE, dtypes="u32", budget=60, storage=storage)


def test_a_space_of_one_point_says_why_there_is_nothing_to_choose(
    user_operator: Callable[..., str], storage: str
) -> None:
    name = user_operator("fast")
    (report,) = tune(name, shapes=SHAPE, dtypes="u32", budget=60, storage=storage)
    assert report.trials == 1
    assert report.exhausted
    assert report.ratio is None
    assert "leaves nothing to choose" in report.note


def test_a_worker_that_cannot_import_the_operator_says_so(
    user_operator: Callable[..., str], storage: str, tmp_path: Path
) -> None:
    name = user_operator("fast", "slow")
    op = find(name)
    (tmp_path / f"{name.partition(':')[0]}.py").unlink()
    with pytest.raises(TuningError, match=r"could not start: .*cannot be imported"):
        tune(op, shapes=SHAPE, dtypes="u32", budget=60, storage=storage)


def test_an_operator_of_the_main_script_is_refused(
    user_operator: Callable[..., str], storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    op = find(user_operator("fast", "slow"))
    monkeypatch.setattr(op, "module", "__main__")
    with pytest.raises(ArgumentError, match="put it in a module of its own"):
        tune(op, shapes=SHAPE, dtypes="u32", budget=60, storage=storage)


@pytest.mark.long
def test_modules_that_read_standard_input_or_are_called_like_others(
    user_operator: Callable[..., str],
    storage: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = user_operator("slow", "fast")
    path = tmp_path / f"{name.partition(':')[0]}.py"
    path.write_text("import sys\nsys.stdin.read()\n" + path.read_text())
    monkeypatch.setattr("sys.stdin", io.StringIO())
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "queue.py").write_text("raise RuntimeError('not the standard one')")
    monkeypatch.chdir(elsewhere)
    (report,) = tune(
        name, shapes=SHAPE, dtypes="u32", budget=300, limit=10, storage=storage
    )
    assert report.best.knobs == {"way": "fast"}


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Kill the worker with a signal as soon as it has got some of its requests."""

    def arm(number: int, wanted: Callable[[Mapping[str, Any]], bool]) -> None:
        send = Worker._send

        def sent(worker: Worker, request: Mapping[str, Any]) -> None:
            send(worker, request)
            if wanted(request):
                assert worker._process is not None
                os.kill(worker._process.pid, number)

        monkeypatch.setattr(Worker, "_send", sent)
        monkeypatch.setattr(process, "_PAUSES", (0.0, 0.0, 0.0))

    return arm


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_worker_killed_from_outside_is_not_the_candidate_s_fault(
    user_operator: Callable[..., str], storage: str, kills: Any, number: int
) -> None:
    name, seen = user_operator("slow", "fast"), Counter[str]()

    def once(request: Mapping[str, Any]) -> bool:
        said = str(request.get("knobs", request.get("do", request)))
        seen[said] += 1
        return seen[said] == 1

    kills(number, once)
    (report,) = tune(name, shapes=SHAPE, dtypes="u32", budget=300, storage=storage)
    assert report.counts == {"ok": 2}
    assert report.best.knobs == {"way": "fast"}
    assert report.ratio is not None
    assert report.record is not None


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def children_of(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(each) for each in listed.split()]


@pytest.fixture
def relu() -> process.WorkerProcess:
    """A worker that is not started."""
    workload = Workload("nn.relu", ((32,),), ("f32",), threads=1)
    return process.WorkerProcess("nn.relu", workload, targets.host().name)


DAEMON: Final = """
import os, subprocess, sys, time
quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
daemon = subprocess.Popen(["sleep", "60"], start_new_session=True, env={}, **quiet)
open(sys.argv[1], "w").write(str(daemon.pid) + "\\n")
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("outer", [False, True])
def test_a_guard_that_is_killed_leaves_no_daemon(outer: bool, tmp_path: Path) -> None:
    note = tmp_path / "daemon"
    command = [sys.executable, "-c", DAEMON, str(note)]
    guards = [*process._GUARD, str(os.getpid()), *process._GUARD, "0", *command]
    with subprocess.Popen(guards, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert wait_until(lambda: note.exists() and note.read_text().endswith("\n"))
        daemon = Path("/proc") / note.read_text().strip()
        assert daemon.exists()
        os.kill(run.pid if outer else children_of(run.pid)[0], signal.SIGKILL)
        assert wait_until(lambda: not daemon.exists(), 5.0)
        run.wait(5.0)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_tuner_waits_for_the_guard_of_a_guard_that_was_killed(
    relu: process.WorkerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "daemon"
    command = sys.executable, "-c", DAEMON, str(note)
    monkeypatch.setattr(process, "_WORKER", command)
    with relu as worker:
        assert worker._process is not None
        assert wait_until(lambda: note.exists() and note.read_text().endswith("\n"))
        daemon = Path("/proc") / note.read_text().strip()
        (inner,) = children_of(worker._process.pid)
        os.kill(inner, signal.SIGSTOP)  # as on a busy machine
        os.kill(worker._process.pid, signal.SIGKILL)
    assert not daemon.exists()


STUBBORN: Final = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], "w").close()
time.sleep(60)
"""


def test_ctrl_c_while_a_worker_ends_leaves_none(
    relu: process.WorkerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "started"
    command = sys.executable, "-c", STUBBORN, str(note)
    monkeypatch.setattr(process, "_GUARD", command)
    relu.__enter__()
    held = relu._process
    assert held is not None
    wait = held.wait

    def interrupted(timeout: float | None = None) -> int:
        if timeout is not None:
            raise KeyboardInterrupt
        return wait()

    monkeypatch.setattr(held, "wait", interrupted)
    assert wait_until(note.exists)
    with pytest.raises(KeyboardInterrupt):
        relu.stop()
    assert held.returncode == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="inherits orphans")
def test_what_has_ended_and_nobody_reaps_is_not_waited_for(
    relu: process.WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_WORKER", ("sleep", "60"))
    guard.inherit_orphans()  # as the first process of a container does
    try:
        relu.__enter__()
        held = relu._process
        assert held is not None
        assert wait_until(lambda: bool(children_of(held.pid)))
        os.kill(held.pid, signal.SIGKILL)
        start = time.monotonic()
        relu.stop()
        assert time.monotonic() - start < process._STOP_SECONDS / 2
        assert os.waitpid(-held.pid, os.WNOHANG)[0]  # it was there
    finally:
        guard._prctl(guard._CHILD_SUBREAPER, 0)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="limits another process")
def test_too_little_memory_is_not_the_candidate_s_fault(
    user_operator: Callable[..., str], storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    send, hit = Worker._send, []

    def sent(worker: Worker, request: Mapping[str, Any]) -> None:
        if request.get("do") in ("schedule", "attempt") and len(hit) < 2:
            assert worker._process is not None
            (inner,) = children_of(worker._process.pid)
            limits = 1 << 20, resource.RLIM_INFINITY
            resource.prlimit(children_of(inner)[0], resource.RLIMIT_AS, limits)
            hit.append(request["do"])
        send(worker, request)

    monkeypatch.setattr(Worker, "_send", sent)
    monkeypatch.setattr(process, "_PAUSES", (0.0, 0.0, 0.0))
    name = user_operator("slow", "fast")
    (report,) = tune(name, shapes=SHAPE, dtypes="u32", budget=300, storage=storage)
    assert hit
    assert report.counts == {"ok": 2}
    assert report.best.knobs == {"way": "fast"}


@pytest.mark.skipif(sys.platform != "linux", reason="limits memory")
@pytest.mark.parametrize("squeezed", [False, True])
def test_a_limit_that_comes_amid_a_schedule_is_not_its_fault(
    squeezed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    workload = Workload("nn.relu", ((32,),), ("f32",), threads=1)
    request = {
        "operator": "nn.relu",
        "workload": workload.to_json(),
        "target": targets.host().name,
    }
    session = Session(request, Mock(), Mock())
    before = resource.getrlimit(resource.RLIMIT_AS)

    def fails(*_: object) -> None:
        if squeezed:
            resource.setrlimit(resource.RLIMIT_AS, (1 << 46, before[1]))
        raise MemoryError

    monkeypatch.setattr(session._scheduler, "schedule", fails)
    try:
        if squeezed:
            with pytest.raises(Disturbed, match="the system gives too little memory"):
                session.schedule("direct")
        else:
            outcome = session.schedule("direct").outcome
            assert outcome is not None
            assert "its schedule takes more than" in outcome.reason
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.long
def test_a_candidate_that_could_not_be_judged_is_tried_again_by_the_next_run(
    user_operator: Callable[..., str], storage: str, kills: Any
) -> None:
    name = user_operator("slow", "fast", "wrong")
    arguments: dict[str, Any] = {
        "shapes": SHAPE, "dtypes": "u32", "budget": 300, "storage": storage
    }  # fmt: skip
    short = [True]
    kills(
        signal.SIGKILL,
        lambda request: short[0] and request.get("knobs") == {"way": "fast"},
    )
    (report,) = tune(name, **arguments)
    assert report.counts == {"ok": 1, "wrong": 1, "lost": 1}
    assert report.best.knobs == {"way": "slow"}
    (reason,) = (said for said in report.reasons if said.startswith("lost"))
    assert "killed by SIGKILL while" in reason
    short[0] = False  # the memory is free again
    (report,) = tune(name, **arguments)
    assert report.counts == {"ok": 2, "wrong": 1}
    assert report.earlier == 2
    assert report.best.knobs == {"way": "fast"}


def test_workers_that_cannot_start_any_more_do_not_end_the_run(
    user_operator: Callable[..., str], storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = user_operator("slow", "segfault", "fast")
    spawn, left = Worker._spawn, [1]

    def spawned(worker: Worker) -> None:
        if not left:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        left.pop()
        spawn(worker)

    monkeypatch.setattr(Worker, "_spawn", spawned)
    monkeypatch.setattr(process, "_PAUSES", (0.0, 0.0, 0.0))
    monkeypatch.setattr(Search, "suggestions", _in_order)
    (report,) = tune(name, shapes=SHAPE, dtypes="u32", budget=300, storage=storage)
    assert report.counts == {"ok": 1, "crashed": 1, "lost": 1}
    assert report.best.knobs == {"way": "slow"}
    assert any("temporarily unavailable" in said for said in report.reasons)


def _in_order(search: Search, over: object = None) -> Iterator[Suggestion]:
    del over
    for point in search.space.every():
        yield Suggestion(point)


@pytest.mark.long
def test_a_database_that_is_away_ends_no_run_and_gets_its_trials_from_the_next(
    user_operator: Callable[..., str], storage: str, tmp_path: Path
) -> None:
    name, held = user_operator("slow", "fast"), []

    def listen(_: Progress) -> None:
        if not held:
            held.append(sqlite3.connect(tmp_path / "trials.db"))
            held[0].execute("BEGIN IMMEDIATE")

    arguments: dict[str, Any] = {"shapes": SHAPE, "dtypes": "u32", "budget": 300}
    (report,) = tune(name, storage=storage, listen=listen, **arguments)
    assert report.best.knobs == {"way": "fast"}
    assert report.record is not None
    assert "delivered by the next run" in report.note
    held[0].close()
    (report,) = tune(name, storage=storage, **arguments)
    assert report.earlier == report.trials == 2
    assert report.note == ""


@pytest.mark.long
def test_a_disk_that_is_full_at_the_end_is_said_in_the_report(
    user_operator: Callable[..., str],
    storage: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object, **__: object) -> bool:
        raise OSError(errno.ENOSPC, "No space left on device")

    name = user_operator("slow", "fast")
    options: dict[str, Any] = {"shapes": SHAPE, "dtypes": "u32", "budget": 300}
    with monkeypatch.context() as patched:
        patched.setattr(records, "add", full)
        (report,) = tune(name, storage=storage, **options)
    assert report.best.knobs == {"way": "fast"}
    assert report.record is None
    assert "could not be recorded: [Errno 28] No space left" in report.note
    kept = Path(report.note.partition("it is kept in ")[2].partition(", and")[0])
    assert kept.is_relative_to(tmp_path / "data")
    assert not records.all_files(records.user_folder())
    options["trials"] = 1  # the next run adds it before it measures anything
    (report,) = tune(name, storage=f"sqlite:///{tmp_path / 'other.db'}", **options)
    (file,) = records.all_files(records.user_folder())
    assert dict(read_records(file)[0].knobs) == {"way": "fast"}
    assert not kept.exists()


def test_a_disk_that_is_full_at_the_start_is_said_before_anything_is_measured(
    user_operator: Callable[..., str], tmp_path: Path
) -> None:
    name, place = user_operator("slow", "fast"), tmp_path / "home"
    place.mkdir()
    script = f"""
import resource, signal
from tensorlang.tuner import tune
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
def listen(_):
    print("measured", flush=True)
tune({name!r}, shapes={SHAPE}, dtypes="u32", storage="sqlite:///{place}/trials.db",
     listen=listen)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert "RecordError: storage sqlite:" in last
    assert f"{place} takes no files: File too large; free some space" in last


@pytest.mark.long
def test_what_a_candidate_starts_ends_with_it(
    user_operator: Callable[..., str], storage: str, tmp_path: Path
) -> None:
    name = user_operator("slow", "fast")
    path, told = tmp_path / f"{name.partition(':')[0]}.py", tmp_path / "started"
    start = f"""
    import os, subprocess
    if "TENSORLANG_TUNER_WORKER" in os.environ:
        held = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        with open({str(told)!r}, "a") as log:
            print(held.pid, file=log)
"""
    text = path.read_text()
    path.write_text(text.replace("    way = knobs", f"{start}    way = knobs"))
    tune(name, shapes=SHAPE, dtypes="u32", budget=300, storage=storage)
    started = [int(line) for line in told.read_text().split()]
    assert started
    assert not [pid for pid in started if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
