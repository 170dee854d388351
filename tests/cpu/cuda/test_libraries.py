"""Arrays of PyTorch, JAX and CuPy, played by stand-ins with what we ask of them."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError, ShapeError, TensorlangError
from tensorlang.ops import nn, optim
from tensorlang.runtime.arrays import dlpack

RNG = np.random.default_rng(8)
X = RNG.normal(size=(4, 6)).astype(np.float32)
Y = np.maximum(X, 0)


@pytest.fixture
def torch(driver, fake, monkeypatch):
    """A PyTorch of which kernels see tensors on a GPU."""
    dtypes = {name: f"torch.{name}" for name in ("float32", "float64")}

    class Tensor(fake.Tensor):
        def __init__(self, array, offset=0):
            super().__init__(driver, array, offset=offset)
            self.numpy_type = array.dtype
            self.dtype = dtypes[array.dtype.name]

        def data_ptr(self):
            return self.address

        def numel(self):
            return int(np.prod(self.shape))

        def get_device(self):
            return 0

        def is_contiguous(self):
            return self.told["strides"] is None

        def stride(self):
            steps = np.empty(self.shape, self.numpy_type).strides
            return tuple(step // self.numpy_type.itemsize for step in steps)

    module = fake.torch_of(Tensor, **dtypes)
    module.empty = lambda shape, dtype, **_: Tensor(
        np.empty(shape, dtype.partition(".")[2])
    )
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


def test_lists_of_torch_are_checked_at_once(torch, driver, monkeypatch):
    from tensorlang.runtime import calling

    shapes = [(3, 5), (7,), (1, 0), (2, 2, 2)]
    start = [[np.abs(RNG.normal(size=s)).astype(np.float32) for s in shapes]]
    start = [start[0], *([a + n for a in start[0]] for n in (1, 2, 3))]
    held = [[torch.Tensor(array) for array in arrays] for arrays in start]
    optim.adam(*held, step=2, lr=0.1)  # builds the kernel
    optim.adam(*start, step=2, lr=0.1)
    driver.launched.clear()
    with monkeypatch.context() as patch:
        patch.setattr(calling, "prepare", None)  # the careful way
        optim.adam(*held, step=3, lr=0.1)
    optim.adam(*start, step=3, lr=0.1)
    assert len(driver.launched) == 3
    assert {launch[-1] for launch in driver.launched} == {31}
    for arrays, tensors in zip(start, held, strict=True):
        for array, tensor in zip(arrays, tensors, strict=True):
            np.testing.assert_array_equal(tensor.get(), array)


def test_lists_of_torch_that_do_not_fit_are_told(torch):
    def made():
        return [[torch.Tensor(X), torch.Tensor(X[0])] for _ in range(4)]

    optim.adam(*made(), step=2, lr=0.1)
    twice = made()
    twice[0][1] = twice[0][0]
    with pytest.raises(TensorlangError, match="share memory"):
        optim.adam(*twice, step=2, lr=0.1)
    shared = made()
    shared[2][0] = shared[3][0]
    with pytest.raises(ArgumentError, match="share memory"):
        optim.adam(*shared, step=2, lr=0.1)
    other = made()
    other[1][1] = torch.Tensor(X[0].astype(np.float64))
    with pytest.raises(DTypeError, match="f64"):
        optim.adam(*other, step=2, lr=0.1)
    shapes = made()
    shapes[1][0] = torch.Tensor(X[0])
    with pytest.raises(ShapeError, match="has shape"):
        optim.adam(*shapes, step=2, lr=0.1)


def test_jax(driver, fake, monkeypatch):
    taken = []

    class Gpu:
        platform = "gpu"

    class Array(fake.Tensor):
        asked = None

        def devices(self):
            return frozenset({Gpu})

        def is_deleted(self):
            return False

        def __dlpack_device__(self):
            return (dlpack.CUDA, 0)

        def __dlpack__(self, *, stream):
            self.asked = stream
            return dlpack.capsule(fake_array(self), (dlpack.CUDA, 0))

        @property
        def __cuda_array_interface__(self):
            raise AssertionError("JAX's arrays come by DLPack")

    def fake_array(array):
        from tensorlang.runtime.cuda.arrays import array_at

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


def test_slices_of_torch(torch):
    x = torch.Tensor(X, offset=4)
    np.testing.assert_array_equal(nn.relu(x).get(), Y)


def test_lists_with_slices_of_torch(torch):
    shapes = [(3, 5), (64,)]
    start = [
        [np.abs(RNG.normal(size=s)).astype(np.float32) for s in shapes]
        for _ in range(4)
    ]
    held = [[torch.Tensor(array, offset=4) for array in arrays] for arrays in start]
    for step in (2, 3):
        optim.adam(*held, step=step, lr=0.1)
        optim.adam(*start, step=step, lr=0.1)
    for arrays, tensors in zip(start, held, strict=True):
        for array, tensor in zip(arrays, tensors, strict=True):
            np.testing.assert_array_equal(tensor.get(), array)
