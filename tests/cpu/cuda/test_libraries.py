"""Arrays of PyTorch, JAX and CuPy, played by stand-ins with what we ask of them."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError
from tensorlang.ops import nn
from tensorlang.runtime import dlpack

X = np.random.default_rng(8).normal(size=(4, 6)).astype(np.float32)
Y = np.maximum(X, 0)


@pytest.fixture
def torch(driver, fake, monkeypatch):
    """A PyTorch of which kernels see tensors on a GPU."""
    module = ModuleType("torch")

    class Tensor(fake.Tensor):
        requires_grad = False
        device = SimpleNamespace(type="cuda", index=0)

        def __init__(self, array):
            super().__init__(driver, array)
            self.numpy_type = array.dtype
            self.dtype = f"torch.{array.dtype.name}"

        def data_ptr(self):
            return int(self.memory)

        def stride(self):
            steps = np.empty(self.shape, self.numpy_type).strides
            return tuple(step // self.numpy_type.itemsize for step in steps)

    Tensor.__module__ = "torch"
    module.Tensor = Tensor
    module.float32 = np.float32
    module.empty = lambda shape, dtype, **_: Tensor(np.empty(shape, dtype))
    current = SimpleNamespace(cuda_stream=31)
    module.cuda = SimpleNamespace(current_stream=lambda _: current)
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


def test_torch(torch, driver):
    x = torch.Tensor(X)
    y = nn.relu(x)
    assert type(y) is torch.Tensor
    np.testing.assert_array_equal(y.get(), Y)
    assert {launch[-1] for launch in driver.launched} == {31}  # its current stream
    x.requires_grad = True
    with pytest.raises(ArgumentError, match=r"detach\(\)"):
        nn.relu(x)
    strange = torch.Tensor(X)
    strange.dtype = "torch.float8_e4m3fn"
    with pytest.raises(DTypeError, match="float8_e4m3fn"):
        nn.relu(strange)


def test_jax(driver, fake, monkeypatch):
    taken = []

    class Gpu:
        platform = "gpu"

    class Array(fake.Tensor):
        asked = None

        def devices(self):
            return frozenset({Gpu})

        def __dlpack_device__(self):
            return (dlpack.CUDA, 0)

        def __dlpack__(self, *, stream):
            self.asked = stream
            return dlpack.capsule(fake_array(self), (dlpack.CUDA, 0))

        @property
        def __cuda_array_interface__(self):
            raise AssertionError("JAX's arrays come by DLPack")

    def fake_array(array):
        from tensorlang.runtime.cuda_arrays import array_at

        return array_at(0, int(array.memory), array.shape, array.dtype, owner=array)

    Array.__module__ = "jaxlib._jax"
    module = ModuleType("jax")

    def from_dlpack(given):
        assert given.__dlpack_device__() == (dlpack.CUDA, 0)
        found = dlpack.read(given.__dlpack__(stream=9), "y")
        taken.append((given, found))
        return found

    module.dlpack = SimpleNamespace(from_dlpack=from_dlpack)
    monkeypatch.setitem(sys.modules, "jax", module)
    x = Array(driver, X)
    y = nn.relu(x)
    assert x.asked == 1  # our stream, the legacy default, waits for JAX
    assert (y.shape, y.dtype) == (X.shape, X.dtype)
    np.testing.assert_array_equal(fake.fetched(taken[0][0]), Y)
    waits = [call[1] for call in driver.calls if call[0] == "cuStreamWaitEvent"]
    assert waits == [9]  # JAX's stream waits for ours
    with pytest.raises(ArgumentError, match="JAX array, which cannot be written"):
        nn.relu(x, out=x)


def test_cupy(driver, fake, monkeypatch):
    class ndarray(fake.Tensor):  # noqa: N801 - CuPy's name
        device = SimpleNamespace(id=0)

    class Device:
        def __init__(self, index):
            self.index = index

        __enter__ = __exit__ = lambda *_: None

    ndarray.__module__ = "cupy"
    module = ModuleType("cupy")
    module.empty = lambda shape, dtype: ndarray(
        driver, np.empty(shape, dtype), stream=12
    )
    module.cuda = SimpleNamespace(Device=Device)
    monkeypatch.setitem(sys.modules, "cupy", module)
    y = nn.relu(ndarray(driver, X, stream=12))
    assert type(y) is ndarray
    np.testing.assert_array_equal(y.get(), Y)
    assert {launch[-1] for launch in driver.launched} == {12}


def test_whoever_speaks_the_protocol_gets_one_who_does(driver, fake):
    y = nn.relu(fake.Tensor(driver, X, stream=5))
    told = y.__cuda_array_interface__
    assert (told["shape"], told["typestr"], told["stream"]) == (X.shape, "<f4", 5)
    np.testing.assert_array_equal(fake.fetched(y), Y)
    assert y.__dlpack_device__() == (dlpack.CUDA, 0)
    again = nn.relu(y)  # and can be given in turn
    np.testing.assert_array_equal(fake.fetched(again), Y)
