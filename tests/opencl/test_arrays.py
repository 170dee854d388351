"""Arrays of PyOpenCL: used where they lie, on their queue, and given back as such."""

import os
import subprocess
import sys

import numpy as np
import pytest

from tensorlang.errors import (
    ArgumentError,
    DeviceError,
    DeviceMemoryError,
    DTypeError,
    KernelError,
    ShapeError,
)
from tensorlang.ops import find, math, nn, optim, random

cl = pytest.importorskip("pyopencl")
RNG = np.random.default_rng(3)


@pytest.fixture(scope="module")
def queue():
    from tensorlang import devices

    if devices.problem():
        pytest.skip(devices.problem())
    handle = devices.handles()[0]
    return cl.CommandQueue(cl.Context([handle]), handle)


def there(queue, array):
    from pyopencl import array as arrays

    return arrays.to_device(queue, np.ascontiguousarray(array))


def softmax():
    op = find("nn.softmax")
    return op.build(op.workload((8, 33)), "opencl")


def test_a_kernel_takes_and_makes_them(queue):
    x = RNG.normal(size=(8, 33)).astype(np.float32)
    given = there(queue, x)
    y = softmax()(given)
    assert type(y) is type(given)
    assert y.context == given.context
    assert y.queue == queue
    np.testing.assert_array_equal(y.get(), softmax()(x))
    out = there(queue, np.zeros_like(x))
    assert softmax()(given, out=out) is out
    np.testing.assert_array_equal(out.get(), y.get())


def test_an_offset_is_kept(queue):
    x = RNG.normal(size=(40, 64)).astype(np.float32)
    part = there(queue, x)[8:16, :]
    assert part.offset
    op = find("nn.softmax")
    kernel = op.build(op.workload((8, 64)), "opencl")
    np.testing.assert_array_equal(kernel(part).get(), kernel(x[8:16].copy()))


def test_what_does_not_fit_is_told(queue):
    kernel = softmax()
    x = there(queue, RNG.normal(size=(8, 66)).astype(np.float32))
    with pytest.raises(ArgumentError, match="not contiguous; pass a contiguous copy"):
        kernel(x[:, ::2])
    with pytest.raises(ArgumentError, match="begins 4 bytes into its buffer"):
        kernel(x.ravel()[1 : 1 + 8 * 33].reshape(8, 33))
    with pytest.raises(ShapeError, match=r"shape \(8, 66\)"):
        kernel(x)
    with pytest.raises(DTypeError, match="float64"):
        kernel(there(queue, np.zeros((8, 33))))
    other = cl.CommandQueue(cl.Context([queue.device]))
    strange = there(other, np.zeros((8, 33), np.float32))
    with pytest.raises(ArgumentError, match="another context"):
        kernel(there(queue, np.zeros((8, 33), np.float32)), out=strange)
    lone = there(queue, np.zeros((8, 33), np.float32)).with_queue(None)
    with pytest.raises(ArgumentError, match="no command queue"):
        kernel(lone)


def test_buffers_that_do_not_hold_an_array_are_told(queue):
    from pyopencl import array as arrays

    x = there(queue, np.zeros((8, 33), np.float32))
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4096)
    long = arrays.Array(queue, (1025,), np.float32, data=buffer)
    with pytest.raises(ArgumentError, match="ends 4100 bytes into a buffer of 4096"):
        nn.relu(long)
    part = arrays.Array(queue, (8,), np.float32, data=buffer[1024:], offset=1024)
    with pytest.raises(ArgumentError, match="OpenCL creates no sub-buffer there"):
        nn.relu(part)
    wide = there(queue, np.zeros((16, 33), np.float32))
    with pytest.raises(ArgumentError, match=r"out of shape .* is not contiguous"):
        nn.relu(x, out=wide[::2])


FORK = """
import os
import numpy as np
from tensorlang.errors import DeviceError
from tensorlang.ops import nn
x = np.ones((64, 64), np.float32)
nn.softmax(x, target="opencl")
child = os.fork()
if child == 0:
    nn.relu(x)
    for op in (nn.softmax, nn.gelu):
        try:
            op(x, target="opencl")
        except DeviceError as error:
            assert "spawn" in str(error)
        else:
            os._exit(1)
    os._exit(0)
nn.softmax(x, target="opencl")
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.usefixtures("queue")
def test_a_child_of_a_fork_is_told():
    command = [sys.executable, "-W", "ignore", "-c", FORK]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0


def test_memory_that_is_no_buffer_is_told(queue):
    from pyopencl.tools import SVMAllocator

    flags = cl.svm_mem_flags.READ_WRITE
    allocator = SVMAllocator(queue.context, flags=flags, queue=queue)
    from pyopencl import array as arrays

    made = arrays.empty(queue, (8, 33), np.float32, allocator=allocator)
    with pytest.raises(ArgumentError, match="shared virtual memory"):
        softmax()(made)


def test_a_check_reports_its_fault_once(queue):
    table = there(queue, RNG.normal(size=(5, 3)).astype(np.float32))
    for _ in range(2):
        with pytest.raises(KernelError, match="an index is 9, and what it indexes"):
            nn.embedding(there(queue, np.array([1, 9], np.int32)), table)
        rows = nn.embedding(there(queue, np.array([1, 4], np.int32)), table)
        np.testing.assert_array_equal(rows.get(), table.get()[[1, 4]])


def test_what_the_driver_refuses_is_told(monkeypatch):
    kernel = softmax()
    x = np.zeros((8, 33), np.float32)
    kernel(x)
    program = kernel._own
    with monkeypatch.context() as patch:
        patch.setattr(program, "table", 0)
        patch.setattr(kernel, "_launcher", lambda *_: -6)
        kernel._launcher.temporaries = []
        with pytest.raises(DeviceMemoryError, match="OUT_OF_HOST_MEMORY"):
            kernel(x)
        patch.setattr(kernel, "_launcher", lambda *_: -48)
        kernel._launcher.temporaries = []
        with pytest.raises(DeviceError, match="INVALID_KERNEL"):
            kernel(x)

        def broken(*_):
            raise cl.LogicError("clEnqueueMapBuffer failed")

        patch.setattr(kernel, "_buffer", broken)
        with pytest.raises(DeviceError, match="OpenCL failed: clEnqueueMapBuffer"):
            kernel(x)
    np.testing.assert_allclose(kernel(x), 1 / 33, rtol=1e-6)


def test_overlaps(queue):
    x = RNG.normal(size=(8, 33)).astype(np.float32)
    expected = softmax()(x)
    given = there(queue, x)
    softmax()(given, out=given)
    np.testing.assert_array_equal(given.get(), expected)


def test_one_program_a_context(queue):
    kernel = softmax()
    x = np.zeros((8, 33), np.float32)
    before = len(kernel._programs)
    for _ in range(3):
        kernel(there(queue, x))
    assert len(kernel._programs) <= before + 1


CALLS = {
    "gelu": nn.gelu,
    "add": lambda x, **t: math.add(x, x, **t),
    "multiply": lambda x, **t: math.multiply(x, 2.5, **t),
    "sum": lambda x, **t: math.sum(x, axis=1, **t),
    "softmax": nn.softmax,
    "dropout": lambda x, **t: nn.dropout(x, 0.5, key=random.key(3), **t),
    "dense": lambda x, **t: nn.dense(x, x, **t),
    "sort": math.sort,
    "transpose": lambda x, **t: nn.transpose(x, (1, 0), **t),
    "reshape": lambda x, **t: nn.reshape(x, (8, 64), **t),
    "layer_norm": lambda x, **t: nn.layer_norm(x, x[0], x[0], **t),
}


@pytest.mark.parametrize("name", CALLS)
def test_operators_go_where_the_arrays_are(name, queue):
    x = RNG.normal(size=(16, 32)).astype(np.float32)
    y = CALLS[name](there(queue, x))
    expected = CALLS[name](x, target="opencl")
    assert type(y).__module__.startswith("pyopencl")
    assert (y.queue, y.shape, y.dtype) == (queue, expected.shape, expected.dtype)
    np.testing.assert_array_equal(y.get(), expected)


ARRANGED = {
    "sort": lambda x, **t: math.sort(x, axis=0, **t),
    "argsort": lambda x, **t: math.argsort(x, axis=1, descending=True, **t),
    "sort_grad": lambda x, **t: math.sort_grad(x, x, axis=0, **t),
    "permutation": lambda x, **t: random.permutation(random.key(1), x, **t),
    "of an axis": lambda x, **t: random.permutation(random.key(2), x, axis=1, **t),
    "categorical": lambda x, **t: random.categorical(random.key(1), x, **t),
    "of columns": lambda x, **t: random.categorical(random.key(1), x, axis=0, **t),
}


@pytest.mark.parametrize("name", ARRANGED)
def test_what_puts_in_order_does_so_where_the_arrays_are(name, queue):
    x = RNG.normal(size=(7, 6, 5)).astype(np.float32)
    given = there(queue, x)
    y, expected = ARRANGED[name](given), ARRANGED[name](x)
    assert type(y) is type(given)
    assert (y.queue, y.dtype) == (queue, expected.dtype)
    np.testing.assert_array_equal(y.get(), expected)
    out = there(queue, np.zeros_like(expected))
    assert ARRANGED[name](given, out=out) is out
    np.testing.assert_array_equal(out.get(), expected)
    np.testing.assert_array_equal(given.get(), x)


def test_an_array_is_shuffled_in_place(queue):
    x = RNG.normal(size=(70, 5)).astype(np.float32)
    given = there(queue, x)
    random.permutation(random.key(1), given, out=given)
    np.testing.assert_array_equal(given.get(), random.permutation(random.key(1), x))


def test_out_alone_says_where(queue):
    out = there(queue, np.zeros(100, np.uint32))
    assert random.bits(random.key(1), (100,), out=out) is out
    np.testing.assert_array_equal(out.get(), random.bits(random.key(1), (100,)))
    small = there(queue, np.zeros(100, np.uint16))
    with pytest.raises(ArgumentError, match="is no multiple of"):
        random.bits(
            random.key(1), (100,), "uint16", offset=1, stream="packed", out=small
        )


def test_updates_in_place(queue):
    start = [np.abs(RNG.normal(size=501)).astype(np.float32) for _ in range(4)]
    held = [there(queue, array) for array in start]
    optim.adam(*held, step=2, lr=0.1)
    optim.adam(*start, step=2, lr=0.1, target="opencl")
    for here, on_device in zip(start, held, strict=True):
        np.testing.assert_array_equal(on_device.get(), here)
    with pytest.raises(ArgumentError, match="share memory"):
        optim.adam(held[0], held[1], held[2], held[2], step=2, lr=0.1)
    two = [[there(queue, a), there(queue, a[:7])] for a in start]
    optim.adam(*two, step=2, lr=0.1)
    assert not np.array_equal(two[0][1].get(), start[0][:7])


def test_a_number_beside_them_and_arrays_of_the_host(queue):
    x = RNG.normal(size=(4, 8)).astype(np.float32)
    y = math.add(there(queue, x), x)
    np.testing.assert_array_equal(y.get(), x + x)
    with pytest.raises(ArgumentError, match="on opencl, which this target cannot"):
        math.add(there(queue, x), x, target="llvm")
