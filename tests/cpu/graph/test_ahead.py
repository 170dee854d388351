"""The kernels of a program are built side by side, and are those of one process."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tensorlang import graph, ir
from tensorlang.errors import CodegenError
from tensorlang.graph import Network, TensorSpec
from tensorlang.graph.networks.leaves import Weight
from tensorlang.ops import (
    math,
    nn,
    operator,
    operators,
)
from tensorlang.ops.kernels import ahead, first_miss, tracing
from tensorlang.runtime import building, cache

pytestmark = pytest.mark.llvm_only
SHAPE = (6, 10)
X = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)


@operator("tests.ahead.own")
def own(x):
    """A user's own operator: other processes know nothing of it."""
    return ir.compute(x.shape, lambda *at: x[at] * 2.0 + 1.0, "y")


def program(x):
    for step in (math.exp, nn.softmax, math.tanh, own, nn.gelu, math.sin, math.cos):
        x = step(x)
    for step in (math.sum, math.max, math.mean, math.logsumexp, math.var):
        x = math.add(x, step(x, -1, keepdims=True))
    return nn.log_softmax(x)


class Runs:
    """First runs of a program, as in a new process; `made` here are these kernels."""

    def __init__(self, monkeypatch, folder):
        self._monkeypatch, self._folder, self.made = monkeypatch, folder, []
        make = building.make_artifact

        def noted(recipe, target):
            self.made.append(recipe.function.name)
            return make(recipe, target)

        monkeypatch.setattr(building, "make_artifact", noted)

    def forget(self):
        self.made.clear()
        building.forget()
        ahead.noting.cache_clear()
        for op in operators():
            op.forget()

    def first(self, processes, cached):
        self._monkeypatch.setenv(first_miss.VARIABLE, str(processes))
        self._monkeypatch.setenv("TENSORLANG_CACHE", str(self._folder / cached))
        self.forget()
        return graph.trace(program, [TensorSpec(SHAPE)])(X)


@pytest.fixture
def runs(monkeypatch, tmp_path):
    made = Runs(monkeypatch, tmp_path)
    yield made
    made.forget()


def test_another_process_builds_some(runs):
    expected = runs.first(1, "alone")
    every = [*runs.made]
    np.testing.assert_array_equal(runs.first(2, "together"), expected)
    assert 0 < len(runs.made) < len(every)
    assert runs.made.count("tests_ahead_own") == 1
    np.testing.assert_array_equal(runs.first(2, "together"), expected)
    assert runs.made == []  # all are on disk


def test_a_program_that_ran_before_is_not_traced(runs, monkeypatch):
    expected = runs.first(1, "alone")
    trace = tracing.trace

    def only_own(spec, *args, **options):
        assert spec.id == own.id
        return trace(spec, *args, **options)

    monkeypatch.setattr(tracing, "trace", only_own)
    cache._notes_in.cache_clear()
    for op in operators():
        op._traces.clear()
    np.testing.assert_array_equal(runs.first(1, "alone"), expected)
    assert runs.made == []


@pytest.mark.parametrize("interpreter", ["", "/bin/true", "python-that-is-not-there"])
def test_without_other_processes_this_one_builds_all(interpreter, runs, monkeypatch):
    monkeypatch.setattr(sys, "executable", interpreter)
    expected = runs.first(1, "alone")
    every = sorted(runs.made)
    np.testing.assert_array_equal(runs.first(3, "together"), expected)
    assert sorted(runs.made) == every


def test_a_process_that_ends_costs_nothing_but_time(runs, monkeypatch):
    class Ends(ahead.Worker):
        def ask(self, request):
            del request  # over which it ends

    expected = runs.first(1, "alone")
    monkeypatch.setattr(ahead, "Worker", Ends)
    np.testing.assert_array_equal(runs.first(2, "together"), expected)


def test_what_cannot_be_built_is_told_as_ever(runs, monkeypatch):
    def refused(*_):
        raise CodegenError("not this one")

    monkeypatch.setattr(building, "make_artifact", refused)
    with pytest.raises(CodegenError, match="not this one"):
        runs.first(2, "together")


def test_an_interruption_ends_the_others(runs, monkeypatch):
    started = []
    start = ahead.Worker._start

    def noted(worker):
        started.append(start(worker))
        return started[-1]

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(ahead.Worker, "_start", noted)
    monkeypatch.setattr(building, "make_artifact", interrupted)
    with pytest.raises(KeyboardInterrupt):
        runs.first(2, "together")
    assert all(process.wait(10) != 0 for process in started)


def test_a_few_kernels_start_no_process(runs, monkeypatch):
    monkeypatch.setattr(ahead, "Worker", pytest.fail)
    monkeypatch.setenv(first_miss.VARIABLE, "8")
    monkeypatch.setenv("TENSORLANG_CACHE", str(runs._folder / "few"))
    runs.forget()
    traced = graph.trace(lambda x: math.exp(math.sin(x)), [TensorSpec(SHAPE)])
    np.testing.assert_allclose(traced(X), np.exp(np.sin(X)), rtol=1e-5)


def test_views_of_frozen_weights_are_not_written(runs, monkeypatch):
    """The program is bound a second time, in the middle of the first."""
    monkeypatch.setenv(first_miss.VARIABLE, "2")
    monkeypatch.setenv("TENSORLANG_CACHE", str(runs._folder / "frozen"))
    runs.forget()
    w = Weight(TensorSpec((3,)), "w", lambda *_: np.arange(3, dtype=np.float32))
    net = Network(lambda x: nn.reshape(w, (3, 1)) * x, TensorSpec((2, 3, 4)))
    net.freeze()
    x = np.ones((2, 3, 4), np.float32)
    wanted = x * np.arange(3)[:, None]
    np.testing.assert_allclose(net(x), wanted, rtol=1e-6)
