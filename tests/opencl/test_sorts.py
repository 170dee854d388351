"""Sorts by blocks of threads, on PoCL, against the CPU's; in small blocks."""

import numpy as np
import pytest

from tensorlang.ops import (
    find,
    math,
)
from tensorlang.ops.kernels.building import schedule
from tensorlang.ops.math import device_sorts, row_scans
from tensorlang.runtime import build
from tensorlang.scheduling import Knobs

RNG = np.random.default_rng(6)


@pytest.fixture(autouse=True)
def small_blocks(set_constant):
    set_constant(device_sorts, "THREADS", 32)
    set_constant(device_sorts, "ITEMS", (4, 8))
    set_constant(row_scans, "SHORT", 1)


def test_rows_of_any_length(gpu_like):
    op = find("math.argsort")
    workload = op.workload((2, 5000))
    made = schedule(op, workload, gpu_like, "blocks_in_memory", Knobs())
    launch = build(made, gpu_like, store=False).launch
    for shape in ((3, 100), (2, 256), (2, 257), (1, 5000)):
        x = RNG.normal(size=shape).astype("f4")
        x[0, :6] = [np.nan, -0.0, 0.0, np.inf, -np.inf, np.nan]
        x[0, 6:90:7] = 1.5  # equal ones keep their order
        got = np.zeros(shape, "i8")
        launch(x, got)
        np.testing.assert_array_equal(got, math.argsort(x, target="llvm"))
