"""A fake GPU for each test: see `tests/programs/fake_cuda.py`."""

import importlib

import pytest

from tensorlang.ir import parse


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


@pytest.fixture
def many_launches():
    """A function of two launches for each of its rounds, and of a temporary."""
    return parse("""
def steps(x: InOut[f32[n]], *, n: i64, rounds: i64):
    t = alloc(f32[n])
    for r in range(rounds):
        for i in bound((n + 31) // 32, "block.x"):
            for j in bound(32, "thread.x"):
                if i * 32 + j < n:
                    t[i * 32 + j] = x[i * 32 + j] * 2.0
        for i in bound((n + 31) // 32, "block.x"):
            for j in bound(32, "thread.x"):
                if i * 32 + j < n:
                    x[n - 1 - (i * 32 + j)] = t[i * 32 + j] + 1.0
""")
