"""One measurement at a time on a device."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from tensorlang import targets
from tensorlang.tuner.measurement import measuring_lock

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
    monkeypatch.setattr(measuring_lock, "_LONGEST", 0.05)
    with holder(100.0) as other:
        with measuring_lock.held(targets.host()):
            assert other.poll() is None
        other.kill()


def test_a_folder_that_takes_no_file_is_no_reason_not_to_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring_lock, "FOLDER", tmp_path / "no")
    with measuring_lock.held(targets.host()):
        pass


def test_each_gpu_is_a_device_and_all_processors_are_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def handle(index: int) -> Mock:
        return Mock(**{"pci_bus_id.return_value": f"0000:{index:02}:00.0"})

    monkeypatch.setattr(measuring_lock.devices, "cuda_handle", handle)
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
