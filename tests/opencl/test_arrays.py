"""Arrays of PyOpenCL: used where they lie, on their queue, and given back as such."""

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops import find

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
