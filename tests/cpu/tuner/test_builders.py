"""Candidates are built beside the measuring, by workers that judge nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tensorlang import hardware, targets
from tensorlang.ops import find
from tensorlang.runtime import cache
from tensorlang.targets import Target
from tensorlang.tuner import tune
from tensorlang.tuner.tuning_run import Run
from tensorlang.tuner.workers import builders, process
from tensorlang.tuner.workers.builders import Builders
from tensorlang.tuner.workers.client import Worker
from tensorlang.tuner.workers.protocol import OK, Candidate

SHAPE = [(1 << 12,)]


def cached() -> int:
    folder = cache.directory()
    assert folder is not None
    return len(list(folder.glob("*.tlc")))


def worker_of(op: str) -> Worker:
    member, host = find(op), targets.host()
    workload = member.workload(*SHAPE, dtypes="u32", threads=host.threads)
    return Run(member, workload, host).worker()


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))


@pytest.fixture
def builder(user_operator: Callable[..., str]) -> Iterator[Builders]:
    """One of a user's operator."""
    ways = "slow", "fast", "segfault", "endless", "does_not_build", "exits"
    made = Builders([worker_of(user_operator(*ways))], 300)
    yield made
    made.close()


def started(builder: Builders) -> None:
    for start in builder._starting:
        start.result()


def built(builder: Builders, way: str) -> None:
    candidate = Candidate("direct", {"way": way})
    builder.begin(candidate)
    while not builder._building[candidate.key].running():
        time.sleep(0.001)
    builder.await_built(candidate, 60)


def test_what_a_builder_builds_is_found_by_others(builder: Builders) -> None:
    started(builder)
    before = cached()
    built(builder, "fast")
    after = cached()
    assert after > before
    built(builder, "segfault")  # which nobody runs
    assert cached() > after


def test_what_a_builder_cannot_build_is_no_error(builder: Builders) -> None:
    started(builder)
    for way in ("does_not_build", "exits"):
        built(builder, way)
    before = cached()
    built(builder, "slow")
    assert cached() > before


def test_what_is_not_begun_is_not_waited_for(builder: Builders) -> None:
    waiting = [Candidate("direct", {"way": way}) for way in ("slow", "fast")]
    for each in waiting:
        builder.begin(each)  # while it starts
    begun = time.monotonic()
    for each in waiting:
        builder.await_built(each, 60)
    builder.await_built(Candidate("direct", {"way": "plain"}), 60)
    assert time.monotonic() - begun < 1


def test_builders_end_whatever_they_do(builder: Builders) -> None:
    started(builder)
    endless = Candidate("direct", {"way": "endless"})
    builder.begin(endless)
    builder.begin(Candidate("direct", {"way": "fast"}))
    builder.await_built(endless, 0.5)
    begun = time.monotonic()
    builder.close()
    assert time.monotonic() - begun < 10
    assert all(each._process is None for each in builder._workers)


def test_builders_that_cannot_start_are_given_up(
    user_operator: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_WORKER", ("/nonexistent",))
    monkeypatch.setattr(process, "_PAUSES", (0.0,))
    builder = Builders([worker_of(user_operator("slow", "fast"))], 300)
    started(builder)
    built = Candidate("direct", {"way": "slow"})
    builder.begin(built)
    builder.await_built(built, 60)
    builder.close()


@pytest.mark.long
def test_a_search_with_builders_judges_as_without(
    user_operator: Callable[..., str], storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builders, "spare", lambda *_, **__: 2)
    ways = "slow", "wrong", "segfault", "does_not_build", "raises", "exits", "fast"
    name = user_operator(*ways)
    (report,) = tune(name, storage=storage, shapes=SHAPE, dtypes="u32", budget=120)
    assert report.best.knobs == {"way": "fast"}
    assert report.exhausted
    assert report.counts == {OK: 2, "wrong": 1, "crashed": 2, "failed": 2}


def test_builders_take_what_measuring_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    def spare(target: Target) -> int:
        return builders.spare(target, static=False)

    host = targets.host()
    monkeypatch.setattr(hardware, "cores", lambda: 4)
    assert spare(host.with_threads(4)) == 0
    assert spare(host.with_threads(1)) == 2
    assert spare(replace(host, kind="opencl", threads=1)) == 0  # it may be all cores
    assert spare(replace(host, kind="cuda", threads=132)) == 2
    assert builders.spare(host.with_threads(4), static=True) == 2
    monkeypatch.setattr(hardware, "cores", lambda: 64)
    assert spare(host.with_threads(1)) == 8
