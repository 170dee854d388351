"""Fresh outputs: aligned, recycled when the last look at them ends, within a cap."""

import gc
import os
import threading

import numpy as np
import pytest

from tensorlang.runtime.arrays import buffers
from tensorlang.runtime.arrays.buffers import BufferPool, empty, size_class

BYTE = np.dtype(np.uint8)
SIZE = 300_000


@pytest.fixture(autouse=True)
def nothing_idle():
    gc.collect()
    buffers.POOL.clear()
    yield
    buffers.POOL.clear()


def address(array):
    return array.__array_interface__["data"][0]


def test_arrays_are_what_was_asked_for():
    for shape in ((), (0,), (3, 5), (100, 200), (1024, 1024)):
        array = empty(shape, np.dtype(np.float32))
        array.fill(3)
        assert (array.shape, array.dtype) == (shape, np.float32)
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert array.flags.aligned


def test_large_arrays_are_aligned():
    assert address(empty((SIZE,), BYTE)) % 4096 == 0
    assert address(empty((5 << 20,), BYTE)) % (2 << 20) == 0


def test_memory_comes_back_when_the_array_dies():
    array = empty((SIZE,), BYTE)
    first = address(array)
    assert address(empty((SIZE,), BYTE)) != first
    del array
    assert first in (address(empty((SIZE,), BYTE)) for _ in range(2))


@pytest.mark.parametrize(
    "look",
    [
        lambda a: a[10:20],
        lambda a: a.reshape(3, -1).T,
        lambda a: memoryview(a)[5:],
        np.from_dlpack,
        lambda a: a.__dlpack__(),
    ],
    ids=["view", "reshaped", "memoryview", "dlpack", "capsule"],
)
def test_memory_stays_while_anybody_looks(look):
    array = empty((SIZE,), BYTE)
    first = address(array)
    other = look(array)
    del array
    gc.collect()
    held = [empty((SIZE,), BYTE) for _ in range(3)]
    assert first not in map(address, held)
    del other
    gc.collect()
    assert address(empty((SIZE,), BYTE)) == first


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_memory_stays_while_another_library_has_it(library):
    module = pytest.importorskip(library, reason=f"needs {library}")
    from tensorlang.runtime.arrays.host_arrays import as_kind

    array = empty((SIZE // 4,), np.dtype(np.float32))
    array.fill(7)
    first = address(array)
    other = as_kind(array, library)
    del array
    gc.collect()
    again = empty((SIZE // 4,), np.dtype(np.float32))
    assert address(again) != first
    again.fill(0)
    assert float(other.sum()) == 7 * (SIZE // 4)
    assert isinstance(other, module.Tensor if library == "torch" else module.Array)


def test_what_lies_idle_is_capped():
    pool = BufferPool(limit=3 * 65536)
    blocks = [pool.take(65536) for _ in range(5)]
    for block in blocks:
        pool.put(block)
    assert pool.idle_bytes == 3 * 65536
    pool.clear()
    assert pool.idle_bytes == 0


def test_what_does_not_fit_is_a_memory_error():
    for size in (1 << 55, 1 << 62):
        with pytest.raises(MemoryError, match=f"no memory for an array of {size}"):
            buffers._map(size)


def test_sizes_are_rounded_by_an_eighth_at_most():
    for size in (16_385, 100_000, 1 << 20, (1 << 20) + 1, 123_456_789):
        rounded = size_class(size)
        assert size <= rounded <= size * 1.125 + 4096
        assert rounded % 4096 == 0


def test_eight_threads_never_share_memory():
    wrong = []

    def work(number):
        for _ in range(300):
            array = empty((20_000 + 64 * (number % 3),), BYTE)
            array.fill(number)
            if not (array == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.filterwarnings("ignore:os.fork")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_child_writes_its_own_memory():
    array = empty((SIZE,), BYTE)
    array.fill(1)
    with buffers.POOL._lock:
        pass
    child = os.fork()
    if child == 0:
        array.fill(2)
        fresh = empty((SIZE,), BYTE)
        fresh.fill(3)
        del array, fresh
        os._exit(0 if (empty((SIZE,), BYTE) >= 2).all() else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert (array == 1).all()
