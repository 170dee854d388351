# ruff: noqa: ARG001
"""Timing on a GPU: between marks, caches cold; a lost GPU ends the worker."""

import numpy as np
import pytest

from tensorlang import targets
from tensorlang.errors import TargetError
from tensorlang.ops import find
from tensorlang.ops.kernels import building
from tensorlang.runtime.cuda import toolchain
from tensorlang.tuner.measurement.timers import HostTimer, timer_of
from tensorlang.tuner.workers import worker
from tensorlang.tuner.workers.protocol import Candidate


@pytest.fixture
def timer(driver, monkeypatch):
    from tensorlang.tuner.measurement import timers

    monkeypatch.setattr(timers, "_WARM_UP", 0.0)
    monkeypatch.setattr(timers, "_FLUSHED_BYTES", 4096)
    made = timer_of(targets.get("cuda"))
    made._size = 4096
    return made


def test_each_run_is_between_marks_and_cold(timer, driver):
    runs = []

    def call():
        runs.append(None)
        driver.note("call")

    timing = timer.once(call, 0.0)
    assert timing.median == pytest.approx(1.5e-3)
    names = [one[0] for one in driver.calls]
    for at in [n for n, name in enumerate(names) if name == "call"][1:]:
        around = [n for n in names[at - 2 : at + 2] if n != "cuEventCreate"]
        assert around == ["cuMemsetD8Async", "cuEventRecord", "call", "cuEventRecord"]
    assert len(runs) == 2 + timing.calls * 7


def test_far_behind_is_timed_once(timer):
    runs = []
    timing = timer.once(lambda: runs.append(None), 1e-4)
    assert (timing.samples, len(runs)) == ((pytest.approx(1.5e-3),), 2)


def test_rounds_rotate(timer):
    order = []
    calls = {name: lambda name=name: order.append(name) for name in "abc"}
    found = timer.against(calls, 6)
    assert {name: len(one.samples) for name, one in found.items()} == dict.fromkeys(
        "abc", 6
    )
    count = found["a"].calls
    sampled = "".join(order[-18 * count :: count])
    assert sampled[:9] == "abcbcacab"


def test_arguments_lie_there(timer, driver):
    given = timer.arguments([np.arange(6, dtype=np.float32), 3.0])
    assert given[1] == 3.0
    assert given[0].place.name == "cuda"
    before = driver.counted("cuMemcpyHtoDAsync_v2")
    op = find("nn.relu")
    workload = op.workload((6,))
    kernel = op.build(workload, "cuda")
    out = timer._there(np.zeros(6, np.float32))
    kernel.launch(given[0], out)
    assert driver.counted("cuMemcpyHtoDAsync_v2") == before + 1  # the second array's


def test_other_targets_go_by_the_hosts_clock():
    assert isinstance(timer_of(targets.host()), HostTimer)


class Left(BaseException):
    """What ends a process, seen from inside."""


def session(op, shape):
    workload = op.workload(shape)
    request = {"operator": op.id, "workload": workload.to_json(), "target": "cuda"}
    return worker.Session(request, lambda _: None, lambda _: {})


def candidate(op, shape):
    """The default configuration."""
    _, knobs = building.default(op, op.workload(shape), targets.get("cuda"), {})
    return Candidate("direct", knobs.values)


def test_a_worker_tunes_on_it(timer, driver, monkeypatch):
    from tensorlang.tuner.measurement import timers

    monkeypatch.setattr(timers, "CudaTimer", lambda _: timer)
    relu = find("nn.relu")
    outcome = session(relu, (32,)).attempt(candidate(relu, (32,)), 0.0)
    assert (outcome.status, outcome.reason) == ("ok", "")
    assert outcome.seconds == pytest.approx(1.5e-3)


def test_why_nothing_can_be_tuned_is_the_candidates_reason(driver, monkeypatch):
    relu = find("nn.relu")
    usual = candidate(relu, (32,))
    driver.fail = {"cuModuleLoadData": 222}
    outcome = session(relu, (32,)).attempt(usual, 0.0)
    assert outcome.status == "failed"
    assert "UNSUPPORTED_PTX_VERSION" in outcome.reason
    assert "install a driver that is as new" in outcome.reason

    def absent(*_, **__):
        raise TargetError(f"NVRTC is not found: {toolchain.REMEDY}")

    monkeypatch.setattr(toolchain, "ptx_of", absent)
    gelu = find("nn.gelu")
    outcome = session(gelu, (32,)).attempt(candidate(gelu, (32,)), 0.0)
    assert outcome.status == "failed"
    assert outcome.reason.endswith("or set CUDA_HOME to a toolkit")


def test_a_lost_gpu_ends_the_worker(driver, monkeypatch, capsys):
    def leave(code):
        raise Left(code)

    monkeypatch.setattr(worker.os, "_exit", leave)
    relu = find("nn.relu")
    made, usual = session(relu, (32,)), candidate(relu, (32,))
    driver.fail["cuStreamSynchronize"] = 700
    with pytest.raises(Left, match="71"):
        made.attempt(usual, 0.0)
    assert "start a new one" in capsys.readouterr().err
    driver.fail = {"cuStreamSynchronize": 400}
    assert made.attempt(usual, 0.0).status == "failed"
