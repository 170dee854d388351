"""A user's own module in `tlang verify | show | bench | tune`."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

MAIN = "from tensorlang.cli import main; main()"
MODULE = """
from tensorlang.ir import compute
from tensorlang.ops import operator

@operator("my.scaled_sum")
def scaled_sum(x, y, *, scale=1.0):
    "x scaled, plus y."
    return compute(x.shape, lambda i, j: scale * x[i, j] + y[i, j])
"""


@pytest.fixture
def tlang_here(tmp_path):
    (tmp_path / "mymodule.py").write_text(MODULE)

    def run(command, *args):
        return subprocess.run(
            [sys.executable, "-P", "-c", MAIN, command, "mymodule:scaled_sum", *args],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            cwd=tmp_path,
            env=os.environ | {"XDG_DATA_HOME": str(tmp_path / "data")},
        )

    return run


@pytest.mark.parametrize(
    ("command", "args", "said"),
    [
        ("ops", (), r"x scaled, plus y\."),
        ("show", ("--stage", "asm", "--attr", "scale=2"), "my_scaled_sum"),
        ("verify", (), "matches the interpreter: 3 shapes, "),
        ("bench", ("--rounds", "2"), "tensorlang, into existing"),
        ("tune", ("--trials", "1"), r"my\.scaled_sum: 1 of \d+ tried, best "),
    ],
)
def test_every_command_takes_it(tlang_here, command, args, said):
    shape = () if command == "ops" else ("--shape", "30x70,30x70")
    done = tlang_here(command, *shape, *args)
    assert done.returncode == 0, done.stderr
    assert re.search(said, done.stdout)


def test_a_shape_that_its_definition_refuses(tlang_here):
    done = tlang_here("verify", "--shape", "8x8")
    assert done.returncode == 2
    assert "takes 2 arrays (x, y), not 1" in done.stderr
    assert done.stderr.count("\n") == 1
