"""One measurement at a time on a device."""

from __future__ import annotations

import dataclasses
import errno
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import Mock

import pytest

from tensorlang import targets
from tensorlang.tuner.measurement import measuring_lock
from tensorlang.tuner.search import contest
from tensorlang.tuner.tuning_run import Run
from tensorlang.tuner.workers.client import Worker
from tensorlang.tuner.workers.protocol import FAILED, Candidate, Outcome
from tensorlang.tuner.workers.worker import Session
from tensorlang.workload import Workload

HOLD = """
import sys, time
from pathlib import Path
from tensorlang import targets
from tensorlang.tuner.measurement import measuring_lock
measuring_lock.FOLDER = Path(sys.argv[2])
with measuring_lock.held(targets.host()):
    print("held", flush=True)
    time.sleep(float(sys.argv[1]))
"""

RELU = Workload("nn.relu", ((32,),), ("f32",), threads=1)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks of the test's own."""
    monkeypatch.setattr(measuring_lock, "FOLDER", tmp_path)


def holder(seconds: float) -> subprocess.Popen[str]:
    started = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(seconds), str(measuring_lock.FOLDER)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "held\n"
    return started


def test_another_process_waits() -> None:
    with holder(0.5) as other:
        begun = time.monotonic()
        with measuring_lock.held(targets.host()):
            assert time.monotonic() - begun > 0.2
    assert other.returncode == 0


def test_a_killed_process_holds_nothing() -> None:
    with holder(100.0) as other:
        other.kill()
        begun = time.monotonic()
        with measuring_lock.held(targets.host()):
            assert time.monotonic() - begun < 50


def test_a_process_that_never_ends_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = targets.host()
    with holder(100.0) as other:
        for longest, wait in ((60.0, 0.05), (0.05, 60.0)):
            monkeypatch.setattr(measuring_lock, "_LONGEST", longest)
            with measuring_lock.held(host, wait) as why:
                assert other.poll() is None
            held = f"held {measuring_lock.path_of(host)} for more than 0.05 s: other"
            assert f" {held} tuners may have measured" in why
        other.kill()


@pytest.mark.skipif(
    not Path("/proc/locks").exists(), reason="only Linux tells who holds a lock"
)
def test_who_holds_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    host = targets.host()
    with holder(100.0) as other:
        with measuring_lock.held(host, 0.05) as why:
            assert why.startswith(f"process {other.pid} ({sys.executable[:20]}")
        monkeypatch.setattr(measuring_lock, "_LOCKS", Path("/proc/nothing"))
        with measuring_lock.held(host, 0.05) as why:
            assert why.startswith("another process held ")
        other.kill()


@pytest.mark.skipif(
    not Path("/proc/locks").exists(), reason="only Linux tells who holds a lock"
)
def test_a_stopped_holder_is_named_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host, said = targets.host(), list[str]()
    monkeypatch.setattr(measuring_lock, "_ASK", 0.05)
    with holder(100.0) as other:
        with measuring_lock.held(host, 0.2, said.append) as why:
            assert "which is stopped" not in why
        path = measuring_lock.path_of(host)
        (told,) = said  # once
        assert told.startswith(f"waiting for {path}, which process {other.pid} (")
        other.send_signal(signal.SIGSTOP)
        monkeypatch.setattr(measuring_lock, "_LONGEST", math.inf)
        with measuring_lock.held(host, math.inf) as why:  # ends
            assert why.startswith(f"process {other.pid} (")
            assert f"), which is stopped, held {path} for more than" in why
        monkeypatch.setattr(measuring_lock, "_ASK", math.inf)
        with measuring_lock.held(host, math.inf, said.append, why) as again:
            assert f"), which is stopped, held {path}: other tuners" in again
        assert len(said) == 1
        other.kill()


def test_a_lock_that_cannot_be_opened_is_no_reason_not_to_measure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = targets.host()
    path = measuring_lock.path_of(host)
    path.mkdir()
    with measuring_lock.held(host) as why:
        assert why.startswith(f"{path} cannot be locked (Is a directory): other tuners")
    path.rmdir()
    with measuring_lock.held(host) as why:
        assert why == ""
    refused = Mock(side_effect=PermissionError(errno.EACCES, "Permission denied"))
    monkeypatch.setattr(measuring_lock.filelock.FileLock, "_acquire", refused)
    with measuring_lock.held(host) as why:
        assert why.startswith(f"{path} cannot be locked (Permission denied): other")


def test_the_tuner_is_told_what_was_measured_without_the_lock() -> None:
    measuring_lock.path_of(targets.host()).mkdir()
    sent: list[Mapping[str, object]] = []
    request = {"operator": "nn.relu", "target": targets.host().name}
    session = Session({**request, "workload": RELU.to_json()}, sent.append, Mock())
    session.finals({"candidates": [], "rounds": 0, "wait": 1.0})
    waited, told, measured = sent
    assert (waited, measured) == ({"stage": "wait"}, {"stage": "measure"})
    assert "Is a directory" in str(told["unlocked"])


def test_waiting_takes_half_of_the_time_left_and_the_tuner_keeps_why_it_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = Worker("nn.relu", RELU, targets.host().name)
    told = ['{"unlocked": "it was held"}', '{"answer": 1}'] * 3
    sent = Mock()
    monkeypatch.setattr(worker, "_opened", Mock())
    monkeypatch.setattr(worker, "_process", Mock(pid=os.getpid()))
    monkeypatch.setattr(worker, "_send", sent)
    monkeypatch.setattr(worker, "_line", Mock(side_effect=told))
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    for deadline, left in ((106.0, math.inf), (math.inf, 8.0), (90.0, 8.0)):
        worker.deadline = deadline
        assert worker._ask({"do": "attempt"}, 1.0, left) == 1
    waits = [call.args[0]["wait"] for call in sent.call_args_list]
    assert waits == [3.0, 4.0, 0.0]
    known = [call.args[0]["unlocked"] for call in sent.call_args_list]
    assert known == ["", "it was held", "it was held"]  # not waited for again
    assert worker.unlocked == "it was held"


def test_comparing_waits_within_its_budget_and_says_why() -> None:
    worker = Mock(unlocked="it was held")
    worker.attempt.return_value = Outcome(FAILED, "it does not build")
    run = Run(Mock(), RELU, targets.host(), budget=5.0, _begun=100.0)
    found = contest.contest(run, worker, [Candidate("direct")])
    assert worker.deadline == 105.0
    assert found.unlocked == "it was held"
    assert list(found.failed.values()) == ["failed: it does not build"]


def test_each_gpu_is_a_device_and_all_processors_are_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [Mock(bus=f"0000:{index:02}:00.0") for index in (0, 1)]
    monkeypatch.setattr(measuring_lock.nvidia, "gpus", lambda: found)
    host = targets.host()
    gpus = [dataclasses.replace(host, kind="cuda", index=n) for n in (0, 1)]
    paths = {measuring_lock.path_of(t) for t in (host, host.with_threads(1), *gpus)}
    assert len(paths) == 3


def test_folders_for_temporary_files_do_not_part_tuners(tmp_path: Path) -> None:
    code = "from tensorlang.tuner.measurement import measuring_lock as m; "
    code += "from tensorlang import targets; print(m.path_of(targets.host()))"
    paths = set()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        there = os.environ | {"TMPDIR": str(tmp_path / name)}
        command = [sys.executable, "-c", code]
        paths.add(subprocess.check_output(command, env=there))
    assert len(paths) == 1
