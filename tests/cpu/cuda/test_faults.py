"""Faults that checks report: by the call itself if it waits, else by a later one."""

import numpy as np
import pytest

from tensorlang.errors import KernelError
from tensorlang.ops import nn
from tensorlang.runtime.cuda import driver as cuda_driver
from tensorlang.runtime.cuda.arrays import from_interface

TABLE = np.arange(15, dtype=np.float32).reshape(5, 3)
RIGHT, WRONG = np.array([1, 4], np.int32), np.array([1, 9], np.int32)


@pytest.fixture
def embedded(driver, fake):
    """Rows of the table, which is on the GPU, as the indices and the result are."""
    table = fake.Tensor(driver, TABLE, stream=7)

    def call(indices):
        return nn.embedding(fake.Tensor(driver, indices, stream=7), table)

    return call


def test_calls_on_the_gpu_wait_for_nothing(driver, fake, embedded):
    for _ in range(3):
        rows = embedded(RIGHT)
    np.testing.assert_array_equal(fake.fetched(rows), TABLE[RIGHT])
    assert driver.counted("cuStreamSynchronize") == 0
    assert driver.counted("cuMemcpyDtoHAsync_v2") == 0


def test_a_later_call_raises_once_what_was_reported(driver, embedded):
    embedded(WRONG)
    launched = len(driver.launched)
    with pytest.raises(KernelError, match="reported fault 1 in an earlier call") as one:
        embedded(RIGHT)
    assert one.value.code == 1
    assert len(driver.launched) == launched
    embedded(RIGHT)


def test_fetching_an_array_raises_it(embedded):
    rows = from_interface(embedded(WRONG), "rows")
    with pytest.raises(KernelError, match="in an earlier call"):
        rows.place.fetch(rows)
    embedded(RIGHT)


@pytest.mark.usefixtures("driver")
def test_results_on_the_host_are_checked_at_once():
    with pytest.raises(KernelError, match=r"nn.embedding: an index is 9"):
        nn.embedding(WRONG, TABLE, target="cuda")
    np.testing.assert_array_equal(
        nn.embedding(RIGHT, TABLE, target="cuda"), TABLE[RIGHT]
    )


def test_with_blocking_launches_each_call_raises_its_own(embedded, monkeypatch):
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    cuda_driver.blocking.cache_clear()
    with pytest.raises(KernelError, match=r"an index is 9"):
        embedded(WRONG)
    embedded(RIGHT)
