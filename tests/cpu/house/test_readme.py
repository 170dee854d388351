"""What the README shows is true: its Python runs, its output is what is printed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tensorlang import devices

pytestmark = pytest.mark.installed

README = (Path(__file__).parents[3] / "README.md").read_text()
CODE = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
OUTPUT = re.findall(r"```\n(def .*?)```", README, re.DOTALL)


def test_the_first_examples_run() -> None:
    scope: dict[str, object] = {}
    exec(CODE[0], scope)
    assert scope["y"].shape == (4, 1024)  # type: ignore[attr-defined]
    exec(CODE[1], scope)
    assert scope["y"].shape == (4, 512)  # type: ignore[attr-defined]
    assert [scope[name].shape for name in ("dx", "dw", "db")] == [  # type: ignore[attr-defined]
        (4, 1024),
        (512, 1024),
        (512,),
    ]


def test_the_network_trains(capsys) -> None:  # type: ignore[no-untyped-def]
    (code,) = (code for code in CODE if "Sequential" in code)
    scope: dict[str, object] = {}
    exec(code, scope)
    assert scope["y"].shape == (5, 10)  # type: ignore[attr-defined]
    assert np.isfinite(scope["loss"])  # type: ignore[call-overload]
    assert "nn.conv2d(" in capsys.readouterr().out


def test_the_definition_prints_as_shown_and_the_schedule_runs(capsys) -> None:  # type: ignore[no-untyped-def]
    scope: dict[str, object] = {}
    exec(CODE[0].splitlines()[0] + "\n" + CODE[2], scope)
    assert capsys.readouterr().out.strip() == OUTPUT[0].strip()
    exec(CODE[3], scope)
    assert (scope["y"] == 784).all()  # type: ignore[union-attr]
    printed = capsys.readouterr().out
    assert "define i32 @dense" in printed
    assert "vfmadd" in printed or "fmla" in printed


def test_all_of_it_runs_in_one_sitting(capsys) -> None:  # type: ignore[no-untyped-def]
    scope: dict[str, object] = {}
    for code in CODE:
        if "opencl" not in code or not devices.problem():
            exec(code, scope)
    assert capsys.readouterr().out
    if not devices.problem():
        assert scope["y"].shape == scope["images"].shape  # type: ignore[attr-defined]
