# ruff: noqa: ARG001
"""Arrays that begin where a GPU cannot read 16 bytes at once: the fake one faults."""

import numpy as np
import pytest

from tensorlang import build
from tensorlang.ir import parse
from tensorlang.ops import nn, optim

RNG = np.random.default_rng(9)
X = RNG.normal(size=(8, 64)).astype(np.float32)
DEVICE_COPY = "cuMemcpyDtoDAsync_v2"

WIDE = """
def wide(x: f32[n, 8], s: f32[n], y: Out[f32[n, 8]], *, n: i64):
    for i in bound((n + 31) // 32, "block.x"):
        for t in bound(32, "thread.x"):
            if i * 32 + t < n:
                for v in vectorized(4):
                    y[i * 32 + t, v] = x[i * 32 + t, v] + s[i * 32 + t]
                for w in vectorized(4):
                    y[i * 32 + t, w + 4] = x[i * 32 + t, w + 4] * 2.0
"""
S = RNG.normal(size=8).astype(np.float32)
IN = RNG.normal(size=(8, 8)).astype(np.float32)
EXPECTED = np.concatenate([IN[:, :4] + S[:, None], IN[:, 4:] * np.float32(2)], 1)


@pytest.fixture
def wide(driver):
    return build(parse(WIDE), "cuda", store=False)


def test_the_host_is_told_what_a_kernel_moves(wide):
    assert wide._host["alignments"] == [16, 4, 16]


def test_without_copies_a_gpu_would_fault(wide, driver, fake, monkeypatch):
    from tensorlang.errors import DeviceError

    monkeypatch.setitem(wide._host, "alignments", [4, 4, 4])
    with pytest.raises(DeviceError, match="MISALIGNED") as caught:
        wide(fake.Tensor(driver, IN, offset=4), fake.Tensor(driver, S))
    assert caught.value.lost


@pytest.mark.parametrize("offset", [4, 8, 12])
def test_inputs_and_outputs(wide, driver, fake, offset):
    x = fake.Tensor(driver, IN, stream=77, offset=offset)
    s = fake.Tensor(driver, S, stream=77, offset=offset)
    y = wide(x, s)
    np.testing.assert_array_equal(fake.fetched(y), EXPECTED)
    assert driver.counted(DEVICE_COPY) == 1  # x; s is read number by number
    out = fake.Tensor(driver, np.zeros_like(IN), stream=77, offset=offset)
    before = driver.counted("cuStreamSynchronize")
    assert wide(x, s, out=out) is out
    np.testing.assert_array_equal(out.get(), EXPECTED)
    copies = [call for call in driver.calls if call[0] == DEVICE_COPY]
    assert len(copies) == 3
    assert {call[-1] for call in copies} == {77}
    assert driver.counted("cuStreamSynchronize") == before  # nobody waits
    np.testing.assert_array_equal(x.get(), IN)


def test_what_is_aligned_is_not_copied(wide, driver, fake):
    x, s = fake.Tensor(driver, IN, offset=32), fake.Tensor(driver, S, offset=4)
    out = fake.Tensor(driver, np.zeros_like(IN), offset=16)
    wide(x, s, out=out)
    np.testing.assert_array_equal(out.get(), EXPECTED)
    assert driver.counted(DEVICE_COPY) == 0


def test_beside_arrays_of_the_host(wide, driver, fake):
    out = fake.Tensor(driver, np.zeros_like(IN), offset=4)
    wide(IN, S, out=out)
    np.testing.assert_array_equal(out.get(), EXPECTED)


def test_updates_in_place(driver, fake):
    start = [np.abs(RNG.normal(size=64)).astype(np.float32) for _ in range(4)]
    held = [fake.Tensor(driver, array, offset=4) for array in start]
    for step in (3, 4):
        optim.adam(*held, step=step, lr=1e-2)
        optim.adam(*start, step=step, lr=1e-2)
        for here, there in zip(start, held, strict=True):
            np.testing.assert_array_equal(there.get(), here)
    assert driver.counted(DEVICE_COPY) == 2 * (4 + 3)  # the gradient is not written


def test_an_output_that_is_its_input(driver, fake):
    x = fake.Tensor(driver, X, offset=4)
    nn.relu(x, out=x)
    np.testing.assert_array_equal(x.get(), np.maximum(X, 0))
