# ruff: noqa: ARG001
"""Compiled calls with PyTorch's own tensors, in host memory that plays the GPU's."""

import ctypes
import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tensorlang import build
from tensorlang.errors import DeviceError, DTypeError, KernelError
from tensorlang.ir import parse
from tensorlang.runtime import tensor_facts
from tensorlang.runtime.arrays import dlpack
from tensorlang.runtime.cuda import driver as cuda_driver
from tensorlang.runtime.cuda.module import workspace
from tensorlang.runtime.cuda.tensor_call import TensorCall

torch = pytest.importorskip("torch")
X = np.linspace(-1, 1, 60, dtype=np.float32)
SLOW = "slow"
SCALED = """
def scaled(x: f32[n], y: Out[f32[n]], *, n: i64, by: f32, upon: i32):
    for i in bound((n + 31) // 32, "block.x"):
        for j in bound(32, "thread.x"):
            if i * 32 + j < n:
                y[i * 32 + j] = x[i * 32 + j] * by + cast(f32, upon)
"""


@pytest.fixture
def here(driver, monkeypatch):
    """A function that lets the GPU reach a tensor's memory."""
    if dlpack.exchange(torch.Tensor) is None:
        pytest.skip("this PyTorch has no exchange API")
    monkeypatch.setattr(dlpack, "CUDA", dlpack.CPU)

    def reached(tensor):
        storage = tensor.untyped_storage()
        driver.memory[storage.data_ptr()] = (storage, storage.nbytes())
        return tensor

    return reached


@pytest.fixture
def scaled(driver):
    return build(parse(SCALED), "cuda", store=False)


@pytest.fixture
def call(scaled):
    """The compiled call of 60 elements; what is left to the slow path is told."""
    made = scaled.cached_launch([(60,), (60,)])
    compiled = TensorCall(scaled, [60, 60], made._block, [True], lambda *_: SLOW)
    assert compiled.function(1, 2, 3.0, 4) == SLOW  # before the kernel is loaded
    compiled.loaded(0)
    return compiled.function


def test_contiguous_tensors_of_any_shape(here, call, driver):
    driver.calls.clear()
    for shape in ((60,), (3, 20), (5, 1, 12), (1, 60, 1)):
        x = here(torch.tensor(X).reshape(shape))
        y = here(torch.zeros(60))
        assert call(x, y, 2.0, 3) is None
        np.testing.assert_array_equal(y.numpy(), X * 2 + 3)
    assert len(driver.launched) == 4
    assert [call[0] for call in driver.calls] == ["cuCtxGetCurrent"] * 4


def test_all_else_is_left_to_the_slow_path(here, call, driver):
    x, y = here(torch.tensor(X)), here(torch.zeros(60))
    square = here(torch.zeros(60, 60))
    wide = here(torch.zeros(61))
    for given in (
        (x, y),
        (x, y, 1.0, 2, 3),
        (x.numpy(), y, 1.0, 2),
        (x, None, 1.0, 2),
        (square[:, 0], y, 1.0, 2),
        (x.reshape(20, 3).t(), y, 1.0, 2),
        (x.double(), y, 1.0, 2),
        (x.to(torch.int32), y, 1.0, 2),
        (x[1:], y, 1.0, 2),
        (wide, y, 1.0, 2),
        (torch.nn.Parameter(x), y, 1.0, 2),
        (torch.zeros(60, device="meta"), y, 1.0, 2),  # the API reports an error
        (x.to_sparse(), y, 1.0, 2),
        (wide[:60], wide[1:], 1.0, 2),  # they overlap
        (x, y, 1, 2),
        (x, y, 1e300, 2),
        (x, y, 1.0, 1 << 40),
        (x, y, 1.0, 2.0),
        (x, y, "1.0", 2),
    ):
        assert call(*given) == SLOW
    assert driver.launched == []
    assert call(x, x, 2.0, 0) is None  # elementwise: in place
    np.testing.assert_array_equal(x.numpy(), X * 2)


def test_the_context_of_the_gpu_is_current_at_a_launch(here, fake, call, driver):
    x, y = here(torch.tensor(X)), here(torch.zeros(60))
    driver.current = fake.OTHER_CONTEXT
    call(x, y, 2.0, 3)
    np.testing.assert_array_equal(y.numpy(), X * 2 + 3)
    assert driver.current == fake.OTHER_CONTEXT
    driver.fail["cuCtxPushCurrent_v2"] = 201
    fake.NAMES[201] = "CUDA_ERROR_INVALID_CONTEXT"
    with pytest.raises(DeviceError, match="CUDA_ERROR_INVALID_CONTEXT"):
        call(x, y, 2.0, 3)


def test_what_the_driver_refuses_is_raised(here, call, driver):
    x, y = here(torch.tensor(X)), here(torch.zeros(60))
    cuda_driver.STARTED.clear()
    call(x, y, 2.0, 3)
    driver.fail["cuLaunchKernel"] = 400
    with pytest.raises(DeviceError, match="scaled: starting a launch failed: CUDA_ERR"):
        call(x, y, 2.0, 3)
    assert cuda_driver.STARTED.names() == ["scaled"] * 2
    for _ in range(5):
        cuda_driver.STARTED.note("other")
    assert cuda_driver.STARTED.names() == ["other"] * 4


def test_a_call_becomes_compiled_when_it_has_run(here, scaled, driver, monkeypatch):
    known = scaled.cached_launch([(60,), (60,)])
    x, y = here(torch.tensor(X)), here(torch.zeros(60))
    monkeypatch.setattr(torch.Tensor, "get_device", lambda _: 0)
    monkeypatch.setattr("tensorlang.runtime.cuda.cached.stream_of", lambda _: 0)
    ran = []
    monkeypatch.setattr(
        known, "run", lambda *given, run=known.run: ran.append(run(*given))
    )
    known.quick(x, y, 2.0, 3)
    assert ran == [True]
    known.quick(x, y, 4.0, 5)
    assert ran == [True]
    np.testing.assert_array_equal(y.numpy(), X * 4 + 5)
    known.quick(x, y, 4, 5)  # a whole number, for a float
    assert ran == [True] * 2
    with pytest.raises(DTypeError, match="by must be a number"):
        known.quick(x, y, "four", 5)


def test_reported_faults_are_raised_by_the_next_call(here, driver, monkeypatch):
    kernel = build(
        parse("""
def checked(x: i32[n], y: Out[i32[n]], *, n: i64):
    for i in bound(n, "block.x"):
        evaluate(check(x[i] >= i32(0), 7))
        y[i] = x[i]
"""),
        "cuda",
        store=False,
    )
    known = kernel.cached_launch([(3,), (3,)])
    compiled = TensorCall(kernel, [3, 3], known._block, [True], known)
    compiled.loaded(0)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda _: 0)
    monkeypatch.setattr("tensorlang.runtime.cuda.cached.stream_of", lambda _: 0)
    right, wrong = (here(torch.tensor([1, n, 3], dtype=torch.int32)) for n in (2, -2))
    y = here(torch.zeros(3, dtype=torch.int32))
    compiled.function(right, y)
    compiled.function(wrong, y)
    with pytest.raises(KernelError, match="checked reported fault 7 in an earlier"):
        compiled.function(right, y)
    compiled.function(right, y)
    assert y.tolist() == [1, 2, 3]


def test_facts_tell_calls_apart():
    read = tensor_facts.reader(torch)
    x = torch.zeros(3, 4)
    assert read(x) == read(torch.ones(3, 4)) == read(x.t().contiguous().t())
    apart = [(x,), (x, x), (x.double(),), (x[:2],), (x[None],), (x[0],), (x[0, 0],), ()]
    apart += [(x.reshape(2, 6),), (x, x[0]), (x[0], x), (x.int(),), (x.bfloat16(),)]
    assert len({read(*tensors) for tensors in apart}) == len(apart)
    others = [x.numpy(), torch.nn.Parameter(x), torch.zeros(3, requires_grad=True)]
    others += [torch.zeros(3, device="meta"), x.to_sparse(), None]
    others += [torch.zeros((1,) * 40)] * 4
    for n, other in enumerate(others[:-4]):
        assert read(x, other) is None, n
    assert read(*others[-2:]) is not None
    assert read(*others[-4:]) is None  # more than it has room for


STREAM_OF = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
)
REVERSED = """
def turned(x: f32[n], y: Out[f32[n]], *, n: i64):
    t = alloc(f32[n])
    for i in bound(n, "block.x"):
        t[i] = x[i] * 2.0
    for i in bound(n, "block.x"):
        y[i] = t[n - 1 - i]
"""


@pytest.fixture
def turned(driver):
    """A kernel with a temporary, and its compiled call on any stream."""
    kernel = build(parse(REVERSED), "cuda", store=False)
    known = kernel.cached_launch([(60,), (60,)])
    compiled = TensorCall(kernel, [60, 60], known._block, [False], lambda *_: SLOW)
    streams = []

    def call(x, y, stream=0):
        def stream_of(kind, index, place):
            place[0] = stream
            return 0

        streams.append(STREAM_OF(stream_of))
        address = ctypes.cast(streams[-1], ctypes.c_void_p).value
        compiled._plan.stream_of = address
        return compiled.function(x, y)

    return kernel, compiled, call


def test_temporaries_are_in_the_workspace_of_the_stream(here, turned, driver):
    kernel, compiled, call = turned
    x, y = here(torch.tensor(X)), here(torch.zeros(60))
    device = kernel.module.device
    compiled.loaded(5)
    assert call(x, y, stream=5) == SLOW  # it has no memory yet
    held = workspace(device, 5)
    held.take([60 * 4 - 1], 5)
    assert held._memory.size == 256
    assert call(x, y, stream=5) is None
    np.testing.assert_array_equal(y.numpy(), X[::-1] * 2)
    assert call(x, y, stream=6) == SLOW  # another stream's
    assert call(x, y, stream=0) == SLOW
    driver.capturing = (5, [])
    assert call(x, y, stream=5) == SLOW  # a graph has memory of its own
    driver.capturing = None
    held._memory, held._words[2] = None, held._words[1] + 239
    assert call(x, y, stream=5) == SLOW  # too little
    assert len(driver.launched) == 2


def test_calls_with_temporaries_are_enqueued_one_after_another(here, turned, driver):
    kernel, compiled, call = turned
    x, y = here(torch.tensor(X)), here(torch.zeros(60))
    device = kernel.module.device
    compiled.loaded(0)
    workspace(device, 0).take([240], 0)
    assert call(x, y) is None
    with ThreadPoolExecutor(1) as other, device.lock:
        assert other.submit(call, x, y).result() == SLOW  # which waits for the lock
        assert call(x, y) is None  # the lock may be taken again
    with ThreadPoolExecutor(1) as other:
        assert other.submit(call, x, y).result() is None  # it was released
    driver.fail["cuLaunchKernel"] = 400
    with pytest.raises(DeviceError, match="turned: starting a launch"):
        call(x, y)
    del driver.fail["cuLaunchKernel"]
    with ThreadPoolExecutor(1) as other:
        assert other.submit(call, x, y).result() is None


def test_its_code_stays_loaded(here, scaled):
    known = scaled.cached_launch([(60,), (60,)])
    compiled = TensorCall(scaled, [60, 60], known._block, [True], known)
    compiled.loaded(0)
    function = compiled.function
    del scaled.__dict__["launcher"], compiled, known
    gc.collect()
    x, y = here(torch.tensor(X)), here(torch.zeros(60))
    assert function(x, y, 2.0, 3) is None
    np.testing.assert_array_equal(y.numpy(), X * 2 + 3)
