"""A fixture that runs `tlang` in this process, with records of its own."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from tensorlang import records
from tensorlang.cli.app import app


@pytest.fixture
def tlang(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORLANG_RECORDS", str(tmp_path / "records"))
    monkeypatch.delenv("TENSORLANG_PIN", raising=False)
    records.forget()
    yield lambda *args: CliRunner().invoke(app, [str(arg) for arg in args])
    records.forget()
