# ruff: noqa: ARG001
"""What goes wrong on a real machine, and what is said: memory, faults, forks, pools."""

import ctypes
import os

import numpy as np
import pytest

from tensorlang.errors import DeviceError, DeviceMemoryError
from tensorlang.ops import find, nn
from tensorlang.runtime.arrays import dlpack
from tensorlang.runtime.cuda import device as cuda_device
from tensorlang.runtime.cuda import driver as cuda_driver
from tensorlang.runtime.cuda import lifetimes as cuda_lifetimes

X = np.linspace(-1, 1, 96, dtype=np.float32).reshape(4, 24)


@pytest.fixture
def kernel(driver):
    cuda_driver.STARTED.clear()
    op = find("nn.softmax")
    return op.build(op.workload((4, 24)), "cuda")


def test_no_memory_says_how_much_was_asked_for_and_is_free(driver):
    driver.fail = {"cuMemAllocFromPoolAsync": 2}
    with pytest.raises(DeviceMemoryError) as caught:
        cuda_device.Memory(cuda_device.device(0), 5 << 30)
    assert str(caught.value).startswith(
        "5,120 MiB do not fit on cuda:0, where 3 MiB of 64 MiB are free: "
        "cuMemAllocFromPoolAsync failed: CUDA_ERROR_OUT_OF_MEMORY"
    )


def test_memory_comes_from_a_pool_of_our_own(driver, kernel):
    for _ in range(3):
        kernel(X)
    assert driver.counted("cuMemPoolCreate") == 1
    assert driver.counted("cuMemAlloc_v2") == 0


def test_without_pools_memory_is_plain(driver, kernel):
    driver.fail = {"cuMemPoolCreate": 801}
    np.testing.assert_allclose(kernel(X), nn.softmax(X), rtol=1e-6)
    memory = cuda_device.Memory(cuda_device.device(0), 64)
    freed = driver.counted("cuMemFree_v2")
    del memory
    assert driver.counted("cuMemFree_v2") == freed + 1
    assert driver.counted("cuMemAllocFromPoolAsync") == 0
    assert driver.counted("cuMemPoolCreate") == 1


def test_a_fault_names_the_kernels_that_may_have_failed(driver, kernel):
    kernel(X)
    driver.fail = {"cuStreamSynchronize": 700}
    with pytest.raises(DeviceError, match="CUDA_ERROR_ILLEGAL_ADDRESS") as caught:
        kernel(X)
    assert caught.value.lost
    assert (
        "kernels launched: nn_softmax, nn_softmax; with CUDA_LAUNCH_BLOCKING=1"
        in str(caught.value)
    )


def test_with_blocking_launches_the_one_that_fails_is_named(
    driver, fake, kernel, monkeypatch
):
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    cuda_driver.blocking.cache_clear()
    x = fake.Tensor(driver, X)
    kernel(x)
    driver.fail = {"cuStreamSynchronize": 700}
    with pytest.raises(
        DeviceError, match=r"^nn_softmax failed: cuStreamSynch"
    ) as caught:
        kernel(x)
    assert caught.value.lost
    assert "kernels launched" not in str(caught.value)


def test_a_fork_is_told_apart(driver, kernel, monkeypatch):
    kernel(X)
    monkeypatch.setitem(driver.fail, "cuCtxGetCurrent", 3)
    with pytest.raises(DeviceError) as caught:
        kernel(X)
    assert "fork" not in str(caught.value)
    parent = os.getpid()
    monkeypatch.setattr(cuda_driver.os, "getpid", lambda: parent + 1)
    with pytest.raises(DeviceError, match="start processes with 'spawn'"):
        kernel(X)


def test_arrays_of_jax_are_held_until_the_stream_is_done_with_them(driver):
    class Owner:
        pass

    import weakref

    device = cuda_device.device(0)
    gone = []

    def given(name):
        owner = Owner()
        weakref.finalize(owner, gone.append, name)
        with device.current():
            cuda_lifetimes.until_done(device, 7, owner)

    driver.fail["cuEventQuery"] = 600  # not yet
    for name in "abc":
        given(name)
    assert gone == []
    driver.fail = {}
    given("d")
    assert gone == ["a", "b", "c"]
    driver.fail["cuEventQuery"] = 600
    for n in range(cuda_lifetimes._MOST_HELD + 5):
        given(n)
    assert len(gone) >= 5


def test_memory_is_given_back_after_its_consumer(driver, fake):
    y = nn.relu(fake.Tensor(driver, X, stream=5))
    found = dlpack.read(y.__dlpack__(stream=9), "y")
    waits = [call[1:] for call in driver.calls if call[0] == "cuStreamWaitEvent"]
    assert [wait[0] for wait in waits] == [9]  # it waits for us
    address = found.address
    consumed(found.capsule)
    del y, found
    waits = [call[1] for call in driver.calls if call[0] == "cuStreamWaitEvent"]
    assert waits == [9, 5]  # and before the memory is free, we for it
    assert ("cuMemFreeAsync", address, 5) in driver.calls


def consumed(capsule):
    """What a library does that takes a capsule over, and is done with it."""
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    place = api.PyCapsule_GetPointer(capsule, b"dltensor")
    api.PyCapsule_SetName.argtypes = (ctypes.py_object, ctypes.c_char_p)
    api.PyCapsule_SetName(capsule, USED)
    managed = dlpack._Managed.from_address(place)
    managed.deleter(ctypes.pointer(managed))


USED = b"used_dltensor"
