"""`tlang tune` for real: small, recorded, resumed, stopped."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest

from tensorlang import record_files, records, targets

MAIN = "from tensorlang.cli import main; main()"
TUNE = ("tune", "bits", "--shape", "4096")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user's data directory of its own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path


def test_what_tune_finds_is_recorded_and_chosen(tlang, home):
    result = tlang(*TUNE, "--trials", "3", "--seed", "1")
    assert result.exit_code == 0, result.output
    assert re.search(r"random.bits: 1 of \d+k? tried, best", result.stdout)
    place = record_files.path_of(
        records.user_folder(), targets.host().fingerprint, "random.bits"
    )
    (record,) = record_files.read(place)
    assert record.workload.shapes == ((2,), (4096,))
    assert f"recorded in {place.parent}" in result.stdout
    said = tlang("records", "explain", "bits", "--shape", "4096").stdout
    assert "because: exact" in said
    assert tlang("records", "verify").exit_code == 0
    again = tlang(*TUNE, "--trials", "3", "--seed", "1")
    assert again.exit_code == 0
    assert "3 tried (3 earlier)" in " ".join(again.stdout.split())  # lines are folded
    assert "0 trials in" in again.stdout
    assert (home / "tensorlang" / "tuning.db").exists()


def test_ctrl_c_keeps_what_was_tried(home):
    command = [sys.executable, "-P", "-c", MAIN, *TUNE, "--budget", "5m"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"XDG_DATA_HOME": str(home)},
    ) as process:
        told = [process.stdout.readline(), process.stdout.readline()]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert told[1].startswith("random.bits: 1 of ")
    assert process.returncode == 130
    assert "the same command resumes from there" in errors
    assert errors.count("\n") == 1


def test_a_broken_database_is_one_sentence(tlang, home):
    broken = home / "trials.db"
    broken.write_bytes(b"SQLite format 3\x00" + b"\x07" * 400)
    result = tlang(*TUNE, "--storage", f"sqlite:///{broken}")
    assert result.exit_code == 2
    assert str(broken) in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_storage_that_is_none_is_one_sentence(tlang, home):
    result = tlang(*TUNE, "--storage", "nonsense")
    assert result.exit_code == 2
    assert "nonsense" in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (home / "nonsense").exists()
