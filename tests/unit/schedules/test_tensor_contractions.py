"""Convolutions and batches of bf16 on tensor cores: gathered where they are staged."""

import numpy as np
import pytest

from tensorlang.codegen.simt.lower import lower
from tensorlang.ir.interpreter import run
from tensorlang.ops import find
from tensorlang.ops.kernels.building import schedule
from tensorlang.scheduling import Knobs
from tensorlang.targets import get

GPU = get("cuda:sm_80")
SMALL = {"block_rows": 64, "block_columns": 32, "depth": 16}


def on_tensor_cores(name, shapes, **attributes):
    op = find(name)
    workload = op.workload(*shapes, dtypes="bf16", **attributes)
    made = schedule(op, workload, GPU, "direct", Knobs(pinned=SMALL))
    assert 'tensorize("' in str(made.trace)
    return lower(made.function, GPU)


def arrays(func, *shapes):
    generator = np.random.default_rng(0)
    kind = func.buffers[0].dtype.numpy
    return [generator.normal(size=shape).astype(kind) for shape in shapes]


def outcome(func, given, shape, **scalars):
    y = np.full(shape, np.nan, given[0].dtype)
    report = run(func, *(array.reshape(-1) for array in (*given, y)), **scalars)
    return y.astype("f8"), report


def convolved(x, w, stride=1):
    side = (x.shape[2] - w.shape[2]) // stride + 1
    total = 0.0
    for u, v in np.ndindex(w.shape[2:]):
        part = x[:, :, u::stride, v::stride][:, :, :side, :side]
        total = total + np.einsum("bchw,oc->bohw", part, w[:, :, u, v])
    return total


@pytest.mark.parametrize(("window", "stride"), [(3, 1), (1, 1), (3, 2)])
def test_convolutions(window, stride):
    shapes = (2, 16, 9, 9), (32, 16, window, window)
    func = on_tensor_cores("nn.conv2d", shapes, stride=stride)
    x, w = arrays(func, (3, 16, 9, 9), shapes[1])
    want = convolved(x.astype("f8"), w.astype("f8"), stride)
    y, report = outcome(func, (x, w), want.shape, n0=3)
    np.testing.assert_allclose(y, want, rtol=2**-8, atol=2**-8)
    assert sum(report.bank_conflicts.values()) == 0


def test_batches_of_products():
    func = on_tensor_cores("math.matmul", ((2, 64, 40), (2, 40, 32)))
    a, b = arrays(func, (3, 50, 40), (3, 40, 32))
    y, _ = outcome(func, (a, b), (3, 50, 32), n0=3, n1=50)
    want = a.astype("f8") @ b.astype("f8")
    np.testing.assert_allclose(y, want, rtol=2**-8, atol=2**-8)


def test_steps_that_fill_no_tile_are_zeros():
    func = on_tensor_cores("nn.dense", ((64, 20), (32, 20)))
    x, w = arrays(func, (37, 20), (32, 20))
    y, _ = outcome(func, (x, w), (37, 32), n0=37)
    want = x.astype("f8") @ w.astype("f8").T
    np.testing.assert_allclose(y, want, rtol=2**-8, atol=2**-8)


def test_tiles_are_no_wider_than_the_channels():
    op, knobs = find("nn.conv2d"), Knobs()
    workload = op.workload((2, 64, 12, 12), (64, 64, 3, 3), dtypes="bf16")
    schedule(op, workload, GPU, "direct", knobs)
    tile = knobs.values["block_rows"], knobs.values["block_columns"]
    assert tile == (64, 128)  # all channels, and pixels of a batch that varies
