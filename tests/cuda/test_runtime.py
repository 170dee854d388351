"""Modules, streams, graphs, faults and the tuner's worker on a GPU."""

import numpy as np
import pytest

from tensorlang.errors import DeviceMemoryError, KernelError
from tensorlang.ops import find, math, nn, optim
from tensorlang.ops.kernels.building import default
from tensorlang.ops.spec.examples import arguments
from tensorlang.runtime.cuda import arrays as cuda_arrays
from tensorlang.runtime.cuda import device as cuda_device
from tensorlang.runtime.cuda import driver as cuda_driver
from tensorlang.tuner.measurement.timers import timer_of
from tensorlang.tuner.workers.client import Worker
from tensorlang.tuner.workers.protocol import Candidate

RNG = np.random.default_rng(4)


def there(array):
    """The array on the GPU, and how to fetch it."""
    device = cuda_device.device(0)
    memory = cuda_device.Memory(device, array.nbytes)
    with device.current():
        cuda_driver.call(
            "cuMemcpyHtoDAsync_v2", memory.address, array.ctypes.data, array.nbytes, 0
        )
        cuda_driver.call("cuStreamSynchronize", 0)
    return cuda_arrays.array_at(
        0, memory.address, array.shape, array.dtype, owner=memory
    )


def fetched(array):
    found = np.empty(array.shape, array.dtype)
    with cuda_device.device(0).current():
        cuda_driver.call(
            "cuMemcpyDtoHAsync_v2", found.ctypes.data, array.memory, found.nbytes, 0
        )
        cuda_driver.call("cuStreamSynchronize", 0)
    return found


def test_many_launches_as_a_graph_and_one_by_one(monkeypatch):
    op = find("nn.batch_norm_train")
    kernel = op.build(op.default, "cuda")
    given, scalars = arguments(op, op.default, seed=3)
    results = []
    for _ in range(2):
        held = [there(np.ascontiguousarray(array)) for array in given]
        for _ in range(3):  # launches, then captured, then again
            kernel.launch(*held, *scalars)
        results.append([fetched(array) for array in held])
        monkeypatch.setattr(kernel._graphs, "pay", False)
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_check_reports_its_fault_once():
    table = RNG.normal(size=(50, 8)).astype(np.float32)
    with pytest.raises(KernelError):
        nn.embedding(np.array([1, 99], np.int32), table, target="cuda")
    rows = nn.embedding(np.array([1, 49], np.int32), table, target="cuda")
    np.testing.assert_array_equal(rows, table[[1, 49]])


@pytest.mark.gpu_only
def test_no_memory():
    with pytest.raises(DeviceMemoryError, match="free arrays on the device"):
        cuda_device.Memory(cuda_device.device(0), 1 << 42)


def test_shared_memory_beyond_48_kib_is_asked_for():
    op = find("nn.dense")
    kernel = op.build(op.default, "cuda")
    given, scalars = arguments(op, op.default, seed=3)
    kernel.launch(*given, *scalars)
    expected = [array.copy() for array in given]
    op.build(op.default, "llvm").launch(*expected, *scalars)
    np.testing.assert_allclose(given[-1], expected[-1], rtol=2e-3, atol=2e-3)


@pytest.mark.gpu_only
def test_timing(device):
    op = find("nn.relu")
    workload = op.workload((1 << 26,))
    kernel = op.build(workload, device)
    timer = timer_of(device)
    given, scalars = arguments(op, workload, seed=1)
    held = timer.arguments([*given, *scalars])
    seconds = timer.once(lambda: kernel.launch(*held), 0.0).median
    bytes_a_second = 2 * given[0].nbytes / seconds
    assert 1e10 < bytes_a_second < 2e13


@pytest.mark.gpu_only
def test_the_tuners_worker(device):
    op = find("nn.relu")
    workload = op.workload((1 << 20,))
    candidate = Candidate("direct", default(op, workload, device, {})[1].values)
    with Worker(op.id, workload, "cuda") as worker:
        outcome = worker.attempt(candidate, 120.0)
        assert (outcome.status, outcome.reason) == ("ok", "")
        samples, failed = worker.finals([candidate], 6, 60.0)
    assert failed == {}
    assert all(0 < one < 0.1 for one in samples[candidate.key])


@pytest.mark.gpu_only
def test_many_sets_in_few_launches_are_as_one_at_a_time():
    torch = pytest.importorskip("torch", reason="no GPU in torch: not installed")
    if not torch.cuda.is_available():
        pytest.skip("no GPU: this PyTorch has no CUDA")
    sizes = [1, 3, 64, 1000, 1024, 1025, 4096 + 17, 1 << 20] * 20
    torch.manual_seed(3)
    sets = [[torch.rand(n, device="cuda") for n in sizes] for _ in range(4)]
    alone = [[tensor.clone() for tensor in tensors] for tensors in sets]
    optim.adam(*sets, step=3)
    for one in zip(*alone, strict=True):
        optim.adam(*one, step=3)
    for together, each in zip(sets, alone, strict=True):
        for a, b in zip(together, each, strict=True):
            assert torch.equal(a, b)


@pytest.mark.gpu_only
def test_calls_are_part_of_a_graph_that_torch_captures():
    torch = pytest.importorskip("torch", reason="no GPU in torch: not installed")
    if not torch.cuda.is_available():
        pytest.skip("no GPU: this PyTorch has no CUDA")
    torch.manual_seed(3)
    x = torch.randn(64, 1000, device="cuda")
    given = torch.randn(64, 1000, device="cuda")
    for _ in range(3):  # loads the kernels
        nn.softmax(x)
        math.sum(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        rows, total = nn.softmax(x), math.sum(x)
    for scale in (1.0, 2.0):
        x.copy_(given * scale)
        graph.replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(rows, torch.softmax(x, -1))
        torch.testing.assert_close(total, x.double().sum().float(), rtol=1e-4, atol=1)
        torch.testing.assert_close(nn.softmax(x), rows, rtol=0, atol=0)  # beside it


@pytest.mark.gpu_only
def test_a_fault_on_the_gpu_is_raised_by_a_later_call():
    torch = pytest.importorskip("torch", reason="no GPU in torch: not installed")
    if not torch.cuda.is_available():
        pytest.skip("no GPU: this PyTorch has no CUDA")
    table = torch.rand(50, 8, device="cuda")
    wrong, right = (torch.tensor([1, n], device="cuda") for n in (99, 49))
    nn.embedding(wrong, table)
    torch.cuda.synchronize()
    with pytest.raises(KernelError, match="in an earlier call"):
        nn.embedding(right, table)
    assert torch.equal(nn.embedding(right, table), table[right])
