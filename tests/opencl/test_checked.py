"""A checked build on an OpenCL device that is a CPU."""

import numpy as np
import pytest

from tensorlang import build
from tensorlang.errors import KernelError
from tensorlang.ir import compute, function, placeholder, size
from tensorlang.scheduling import Schedule


def test_an_index_that_is_out_of_bounds(device):
    if device.model != "cpu":
        pytest.skip("a checked build is for CPUs")
    x, at = placeholder((5,), "f32", "x"), placeholder((64,), "i64", "at")
    y = compute(at.shape, lambda i: x[at[i]], "y")
    s = Schedule(function("gathered", [x, at], [y]))
    outer, inner = s.split("i", [None, 8])
    s.parallel(outer)
    s.vectorize(inner)
    kernel = build(s, device, checked=True, store=False)
    numbers, places = np.arange(5, dtype=np.float32), np.arange(64) % 5
    np.testing.assert_array_equal(kernel(numbers, places), numbers[places])
    places[37] = 1 << 40
    with pytest.raises(KernelError, match=r"x\[at\[vi\]\] has index 1099511627776"):
        kernel(numbers, places)


def test_an_empty_array_has_no_element(device):
    if device.model != "cpu":
        pytest.skip("a checked build is for CPUs")
    x, at = (
        placeholder((size("n"),), "f32", "x"),
        placeholder((size("m"),), "i64", "at"),
    )
    y = compute(at.shape, lambda i: x[at[i]], "y")
    func = function("gathered", [x, at], [y])
    kernel = build(func, device, checked=True, store=False)
    with pytest.raises(KernelError, match="index 0 in dimension 0, whose size is 0"):
        kernel(np.zeros(0, np.float32), np.zeros(1, np.int64))
