# ruff: noqa: ARG001
"""Calls on a GPU, end to end, on a fake one that runs launches by the interpreter."""

import numpy as np
import pytest

from tensorlang import build, targets
from tensorlang.errors import (
    ArgumentError,
    DeviceError,
    DeviceMemoryError,
    DTypeError,
    KernelError,
    ShapeError,
    TensorlangError,
)
from tensorlang.ops import find, math, nn, optim, random
from tensorlang.runtime import building

RNG = np.random.default_rng(7)


def softmax(driver):
    op = find("nn.softmax")
    return op.build(op.workload((4, 24)), "cuda")


def test_the_target_is_the_device(driver):
    target = targets.get("cuda:1")
    assert (target.kind, target.name, target.arch) == ("cuda", "cuda:1", "sm_90a")
    assert (target.device, target.threads) == ("Fake H200", 132)
    assert "wgmma" in target.features
    assert targets.to_compile("cuda") == targets.get("cuda")
    assert targets.availability()["cuda"] == ""
    with pytest.raises(TensorlangError, match="this machine has 2 GPUs"):
        targets.get("cuda:2")


def test_host_arrays_go_there_and_back(driver):
    x = RNG.normal(size=(4, 24)).astype(np.float32)
    kernel = softmax(driver)
    y = kernel(x)
    assert type(y) is np.ndarray
    np.testing.assert_allclose(y, nn.softmax(x), rtol=1e-6)
    assert [call[1:] for call in driver.calls if call[0] == "retain"] == [(0,)]
    for _ in range(3):
        np.testing.assert_array_equal(kernel(x), y)
    assert driver.counted("cuModuleLoadData") == 1
    assert driver.counted("retain") == 1
    assert driver.counted("init") == 1


def test_arrays_there_stay_there(driver, fake):
    x = RNG.normal(size=(4, 24)).astype(np.float32)
    kernel = softmax(driver)
    given = fake.Tensor(driver, x)
    y = kernel(given)
    np.testing.assert_array_equal(fake.fetched(y), kernel(x))
    before = (
        driver.counted("cuMemcpyHtoDAsync_v2"),
        driver.counted("cuMemcpyDtoHAsync_v2"),
    )
    waits = driver.counted("cuStreamSynchronize")
    out = fake.Tensor(driver, np.zeros_like(x))
    assert kernel(given, out=out) is out
    np.testing.assert_array_equal(out.get(), fake.fetched(y))
    after = (
        driver.counted("cuMemcpyHtoDAsync_v2"),
        driver.counted("cuMemcpyDtoHAsync_v2"),
    )
    assert (after, driver.counted("cuStreamSynchronize")) == (before, waits)


def test_operators_go_where_the_arrays_are(driver, fake):
    x = RNG.normal(size=(3, 8)).astype(np.float32)
    there = fake.Tensor(driver, x)
    np.testing.assert_array_equal(fake.fetched(nn.relu(there)), np.maximum(x, 0))
    np.testing.assert_array_equal(fake.fetched(math.add(there, x)), x + x)
    key = random.key(5)
    waits = driver.counted("cuStreamSynchronize")
    y = nn.dropout(there, 0.5, key=key.clone())
    assert driver.counted("cuStreamSynchronize") == waits
    np.testing.assert_array_equal(fake.fetched(y), nn.dropout(x, 0.5, key=key))
    out = fake.Tensor(driver, np.zeros(40, np.uint32))
    random.bits(random.key(1), (40,), out=out)
    np.testing.assert_array_equal(out.get(), random.bits(random.key(1), (40,)))


def test_updates_in_place(driver, fake):
    start = [np.abs(RNG.normal(size=37)).astype(np.float32) for _ in range(4)]
    held = [fake.Tensor(driver, array) for array in start]
    optim.adam(*held, step=3, lr=1e-2)
    optim.adam(*start, step=3, lr=1e-2)
    for here, there in zip(start, held, strict=True):
        np.testing.assert_array_equal(there.get(), here)


def test_the_callers_stream(driver, fake):
    x = RNG.normal(size=(4, 24)).astype(np.float32)
    kernel = softmax(driver)
    out = fake.Tensor(driver, x, stream=88)
    kernel(fake.Tensor(driver, x, stream=77), out=out)
    assert {launch[-1] for launch in driver.launched} == {77}
    waits = [call[1] for call in driver.calls if call[0] == "cuStreamWaitEvent"]
    assert waits == [77, 88]  # for the output before, by the output's stream after
    driver.launched.clear()
    kernel(fake.Tensor(driver, x), out=fake.Tensor(driver, x))
    assert {launch[-1] for launch in driver.launched} == {0}


def test_another_context_is_current_before_and_after(driver, fake):
    x = RNG.normal(size=(4, 24)).astype(np.float32)
    driver.current = fake.OTHER_CONTEXT
    np.testing.assert_allclose(softmax(driver)(x), nn.softmax(x), rtol=1e-6)
    assert driver.current == fake.OTHER_CONTEXT


def test_what_does_not_fit_is_told(driver, fake):
    kernel = softmax(driver)
    x = np.zeros((4, 24), np.float32)
    read_only = fake.Tensor(driver, x, read_only=True)
    with pytest.raises(ArgumentError, match="read-only"):
        kernel(x, out=read_only)
    with pytest.raises(DTypeError, match="float64"):
        kernel(fake.Tensor(driver, x.astype(np.float64)))
    with pytest.raises(ShapeError, match=r"shape \(4, 25\)"):
        kernel(fake.Tensor(driver, np.zeros((4, 25), np.float32)))
    strided = fake.Tensor(driver, np.zeros((4, 48), np.float32))
    strided.told |= {"shape": (4, 24), "strides": (192, 8)}
    with pytest.raises(ArgumentError, match="not contiguous; pass a contiguous copy"):
        kernel(strided)
    masked = fake.Tensor(driver, x)
    masked.told["mask"] = masked
    with pytest.raises(ArgumentError, match="has a mask"):
        kernel(masked)
    stranger = fake.Tensor(driver, x)
    stranger.told["data"] = (4096, False)
    with pytest.raises(ArgumentError, match="another CUDA context"):
        kernel(stranger)
    elsewhere = fake.Tensor(driver, x)
    elsewhere.__class__ = type(
        "Elsewhere", (fake.Tensor,), {"__dlpack_device__": lambda _: (2, 1)}
    )
    with pytest.raises(ArgumentError, match=r"runs on cuda, and .* on cuda:1"):
        kernel(elsewhere)
    with pytest.raises(ArgumentError, match="are on cuda and cuda:1"):
        math.add(fake.Tensor(driver, x), elsewhere)
    with pytest.raises(ArgumentError, match="on cuda, which this target cannot reach"):
        nn.relu(fake.Tensor(driver, x), target="llvm")


def test_overlaps(driver, fake):
    x = RNG.normal(size=(4, 24)).astype(np.float32)
    given = fake.Tensor(driver, x)
    softmax(driver)(given, out=given)
    np.testing.assert_allclose(given.get(), nn.softmax(x), rtol=1e-6)


def test_what_the_driver_refuses(driver):
    x = np.zeros((4, 24), np.float32)
    kernel = softmax(driver)
    kernel(x)
    driver.fail["cuLaunchKernel"] = 400
    with pytest.raises(DeviceError, match="CUDA_ERROR_INVALID_HANDLE") as caught:
        kernel(x)
    assert not caught.value.lost
    driver.fail = {"cuStreamSynchronize": 700}
    with pytest.raises(DeviceError, match="start a new one") as caught:
        kernel(x)
    assert caught.value.lost
    driver.fail = {"cuMemAllocFromPoolAsync": 2}
    larger = np.zeros((1 << 12, 24), np.float32)
    with pytest.raises(DeviceMemoryError, match="free arrays on the device"):
        kernel(larger) if kernel.signature.free else nn.softmax(larger, target="cuda")
    driver.fail = {}
    np.testing.assert_allclose(kernel(x), np.full_like(x, 1 / 24), rtol=1e-6)


def test_code_that_the_driver_does_not_know(driver):
    driver.fail["cuModuleLoadData"] = 400
    with pytest.raises(DeviceError, match="made by fake: install a driver that is"):
        softmax(driver)(np.zeros((4, 24), np.float32))


def test_a_check_reports_its_fault(driver):
    table = RNG.normal(size=(5, 3)).astype(np.float32)
    with pytest.raises(KernelError):
        nn.embedding(np.array([1, 9], np.int32), table, target="cuda")
    rows = nn.embedding(np.array([1, 4], np.int32), table, target="cuda")
    np.testing.assert_array_equal(rows, table[[1, 4]])


def test_a_warm_process_compiles_nothing(driver, monkeypatch):
    from tensorlang.runtime.cuda import backend as cuda

    op = find("nn.softmax")
    op.build(op.default, "cuda")
    building.forget()

    def refuse(*_):
        raise AssertionError("compiled again")

    monkeypatch.setattr(cuda, "compiled", refuse)
    assert op.build(op.default, "cuda").resources["launches"] >= 1


def test_a_kernel_for_an_architecture_alone_is_not_run(driver):
    op = find("nn.gelu")
    kernel = op.build(op.default, "cuda:sm_80")
    with pytest.raises(TensorlangError, match="compiled for sm_80 without a GPU"):
        kernel.launch(1, 2)


def test_dynamic_shared_memory_is_asked_for(driver):
    op = find("math.add")
    kernel = build(op.function(op.default), "cuda", store=False)
    kernel._host["launches"][0]["dynamic_shared"] = 100 << 10
    x = np.ones(8, np.float32)
    np.testing.assert_array_equal(kernel(x, x), x + x)
    asked = [call for call in driver.calls if call[0] == "cuFuncSetAttribute"]
    assert [call[1:] for call in asked] == [(8, 100 << 10)]


@pytest.fixture
def steps(driver, fake, many_launches):
    """A kernel of many launches, and four calls of it on one array."""
    start = RNG.normal(size=70).astype(np.float32)

    def calls(stream=None):
        kernel = build(many_launches, "cuda")
        x = fake.Tensor(driver, start, stream=stream)
        expected = start
        for _ in range(4):
            kernel(x, 3)
            for _ in range(3):
                expected = (expected * np.float32(2) + np.float32(1))[::-1]
            np.testing.assert_array_equal(x.get(), expected)

    return calls


def test_many_launches_are_a_graph_when_they_come_again(steps, driver):
    steps(stream=66)
    assert driver.counted("cuStreamEndCapture") == 1
    launched = [call[2] for call in driver.calls if call[0] == "cuGraphLaunch"]
    assert launched == [66] * 3
    assert len(driver.launched) == 4 * 6
    assert {launch[-1] for launch in driver.launched} == {66}


def test_graphs_may_be_off_or_not_there(steps, driver, monkeypatch):
    driver.fail["cuStreamBeginCapture_v2"] = 400
    steps()
    assert driver.counted("cuGraphLaunch") == 0
    assert driver.counted("cuStreamBeginCapture_v2") == 1
    driver.fail = {}
    building.forget()
    steps()
    assert driver.counted("cuGraphLaunch") == 3
    building.forget()
    monkeypatch.setenv("TENSORLANG_CUDA_GRAPHS", "0")
    steps()
    assert driver.counted("cuGraphLaunch") == 3
