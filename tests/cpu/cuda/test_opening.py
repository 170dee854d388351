"""GPUs are shown by PyCUDA or cuda-bindings; what neither can do is told in a line."""

import sys

import numpy as np
import pytest

from tensorlang import devices, nvidia, targets
from tensorlang.errors import DeviceError, DeviceMemoryError, TargetError
from tensorlang.ops import find
from tensorlang.runtime.cuda import device as cuda_device
from tensorlang.tuner.measurement import measuring_lock

X = np.linspace(-1, 1, 96, dtype=np.float32).reshape(4, 24)


@pytest.fixture(params=["pycuda", "cuda.bindings"])
def driver(request, fake, monkeypatch, tmp_path):
    monkeypatch.setenv("TENSORLANG_CACHE", str(tmp_path / "cache"))
    made = fake.install(monkeypatch, library=request.param)
    yield made
    assert made.errors == []
    monkeypatch.undo()
    fake.forget()


@pytest.fixture
def bindings(fake, monkeypatch):
    yield fake.install(monkeypatch, library="cuda.bindings")
    monkeypatch.undo()
    fake.forget()


def test_a_gpu_is_described_opened_and_used(driver):
    target = targets.get("cuda:1")
    assert (target.device, target.arch, target.driver) == (
        "Fake H200",
        "sm_90a",
        "13.5",
    )
    assert (target.threads, target.block_threads) == (132, 1024)
    assert (target.shared_bytes, target.l2_bytes) == (227 << 10, 50 << 20)
    assert "cuda-0000.01.00.0" in measuring_lock.path_of(target).name
    op = find("nn.relu")
    np.testing.assert_array_equal(op(X, target="cuda"), np.maximum(X, 0))
    assert driver.counted("init") == driver.counted("retain") == 1


def test_what_the_driver_refuses_is_told(bindings):
    assert devices.cuda_problem() == ""
    bindings.fail = {"cuDevicePrimaryCtxRetain": 2}
    with pytest.raises(DeviceMemoryError, match="cuda:0 cannot be opened: cuDevicePri"):
        cuda_device.device(0)
    bindings.fail = {"cuDevicePrimaryCtxRetain": 700}
    with pytest.raises(DeviceError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        cuda_device.device(0)


def test_a_driver_without_gpus_is_told_apart_from_none(bindings, fake):
    bindings.fail = {"cuInit": 100}
    fake.forget()
    said = devices.cuda_problem()
    assert said.startswith(
        "no GPU: no driver is found (cuInit failed: CUDA_ERROR_NO_DEVICE); it needs"
    )
    with pytest.raises(TargetError, match=r"is not present: no GPU: .* code for cuda:"):
        targets.get("cuda")


@pytest.mark.usefixtures("bindings")
def test_without_a_library_it_is_said_which_to_install(fake, monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    fake.forget()
    assert devices.cuda_problem() == (
        "neither cuda-bindings nor pycuda is installed; it needs "
        "pip install 'tensorlang[cuda]' and NVIDIA's driver"
    )


def test_a_library_that_does_not_load_leaves_the_other(bindings, fake, monkeypatch):
    class Broken:
        def __getattr__(self, name):
            raise ImportError("libboost.so.1: cannot open shared object file")

    monkeypatch.setitem(sys.modules, "pycuda.driver", Broken())
    fake.forget()
    assert len(nvidia.gpus()) == 2
    bindings.fail = {"cuInit": 100}
    fake.forget()
    assert "(libboost.so.1: cannot open" in devices.cuda_problem()
