"""A user's operator whose schedule can go wrong, and files of the test's own."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tensorlang import records

PROGRAMS = Path(__file__).parents[2] / "programs"
WRITE = runpy.run_path(str(PROGRAMS / "user_operator.py"))["write"]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Records and trials of the test's own."""
    monkeypatch.setenv(records.FOLDER_VARIABLE, str(tmp_path / "records"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("TENSORLANG_PIN", raising=False)
    monkeypatch.setattr(records, "shipped_folder", lambda: tmp_path / "shipped")
    records.forget()
    yield tmp_path
    records.forget()


@pytest.fixture
def user_operator(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Callable[..., str]:
    """Write a module with the operator, whose knob has these ways; its name."""

    def make(*ways: str) -> str:
        name = f"user_{abs(hash((request.node.nodeid, ways))):x}"
        made: str = WRITE(tmp_path, name, ways)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        sys.modules.pop(name, None)
        return made

    return make


@pytest.fixture
def storage(tmp_path: Path) -> str:
    """The URL of a database of the test's own."""
    return f"sqlite:///{tmp_path / 'trials.db'}"
