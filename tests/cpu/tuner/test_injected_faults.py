"""Some dozens of injected faults; `tests/programs/faults.py` injects any number."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "programs" / "faults.py"


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc of Linux")
def test_searches_survive_injected_faults(share: int) -> None:
    options = ("--faults", str(max(24 // share, 1)), "--seed", "7", "--jobs", "3")
    done = subprocess.run(
        [sys.executable, PROGRAM, *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
