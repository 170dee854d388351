"""Arrays of PyTorch, JAX, CuPy and PyCUDA: on their device, on their streams."""

import numpy as np
import pytest

from tensorlang.errors import ArgumentError
from tensorlang.ops import math, nn, optim, random

RNG = np.random.default_rng(2)
X = RNG.normal(size=(64, 96)).astype(np.float32)


@pytest.fixture
def torch():
    found = pytest.importorskip("torch", reason="no GPU in torch: not installed")
    if not found.cuda.is_available():
        pytest.skip("no GPU: this PyTorch has no CUDA")
    return found


@pytest.fixture
def cupy():
    return pytest.importorskip("cupy", reason="CuPy is not installed")


@pytest.fixture
def jax():
    found = pytest.importorskip("jax", reason="JAX is not installed")
    if found.default_backend() != "gpu":
        pytest.skip("no GPU: this JAX has no CUDA")
    return found


def test_torch_in_torch_out(torch):
    x = torch.from_numpy(X).cuda()
    y = nn.softmax(x)
    assert (type(y), y.device) == (torch.Tensor, x.device)
    np.testing.assert_array_equal(y.cpu().numpy(), nn.softmax(X, target="cuda"))
    out = torch.empty_like(x)
    assert nn.gelu(x, out=out) is out
    torch.testing.assert_close(out, torch.nn.functional.gelu(x), rtol=1e-5, atol=1e-6)
    half = x.to(torch.bfloat16)
    assert math.add(half, half).dtype == torch.bfloat16


def test_torch_mistakes(torch):
    x = torch.from_numpy(X).cuda()
    with pytest.raises(ArgumentError, match="not contiguous"):
        nn.relu(x.t())
    with pytest.raises(ArgumentError, match=r"detach\(\)"):
        nn.relu(x.clone().requires_grad_())
    with pytest.raises(ArgumentError, match="which this target cannot reach"):
        nn.relu(x, target="llvm")


def test_a_stream_of_torch(torch):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = torch.zeros(1 << 24, device="cuda")
        for _ in range(20):
            x += 1
        y = nn.relu(x)  # after the additions, on the same stream
        total = y.sum()
    stream.synchronize()
    assert total.item() == 20.0 * (1 << 24)


def test_adam_of_torch(torch):
    start = [np.abs(RNG.normal(size=5001)).astype(np.float32) for _ in range(4)]
    held = [torch.from_numpy(array).cuda() for array in start]
    optim.adam(*held, step=3, lr=1e-2)
    optim.adam(*start, step=3, lr=1e-2)
    for here, there in zip(start, held, strict=True):
        np.testing.assert_array_equal(there.cpu().numpy(), here)


def test_jax_in_jax_out(jax):
    x = jax.device_put(X)
    y = nn.softmax(x)
    assert isinstance(y, jax.Array)
    np.testing.assert_array_equal(np.asarray(y), nn.softmax(X, target="cuda"))
    z = jax.numpy.sum(y, axis=1)  # JAX's stream waits for ours
    np.testing.assert_allclose(np.asarray(z), 1.0, rtol=1e-5)
    with pytest.raises(ArgumentError, match="JAX array"):
        nn.relu(x, out=x)


def test_cupy_in_cupy_out(cupy):
    x = cupy.asarray(X)
    cupy.cuda.Device().synchronize()  # it may still be on its way, on another stream
    with cupy.cuda.Stream(non_blocking=True) as stream:
        y = nn.softmax(x * 2)
        assert isinstance(y, cupy.ndarray)
        stream.synchronize()
    np.testing.assert_array_equal(cupy.asnumpy(y), nn.softmax(X * 2, target="cuda"))


def test_pycuda_in_pycuda_out():
    pytest.importorskip("pycuda.autoprimaryctx")
    from pycuda import gpuarray

    x = gpuarray.to_gpu(X)
    y = nn.softmax(x)
    assert isinstance(y, gpuarray.GPUArray)
    np.testing.assert_array_equal(y.get(), nn.softmax(X, target="cuda"))


def test_a_draw_into_an_array_there(torch):
    out = torch.empty(4096, device="cuda")
    assert random.uniform(random.key(3), (4096,), out=out) is out
    expected = random.uniform(random.key(3), (4096,))
    np.testing.assert_array_equal(out.cpu().numpy(), expected)
