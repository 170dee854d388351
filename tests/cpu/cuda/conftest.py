"""A fake GPU for each test: see `tests/programs/fake_cuda.py`."""

import importlib

import pytest


@pytest.fixture
def fake(programs):
    return importlib.import_module(f"{programs.__name__}.fake_cuda")


@pytest.fixture
def driver(fake, monkeypatch, tmp_path):
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path / "cache"))
    made = fake.install(monkeypatch)
    yield made
    assert made.errors == []
    monkeypatch.undo()
    fake.forget()
