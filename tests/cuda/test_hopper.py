"""The ring of `examples/hopper_ring.py`, and atomic updates, on a GPU."""

import importlib.util
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tensorlang import build
from tensorlang.ir import run
from tensorlang.ir.text.parser import parse
from tensorlang.ops import find, nn
from tensorlang.ops.kernels.building import default

EXAMPLE = Path(__file__).parents[2] / "examples" / "hopper_ring.py"
RNG = np.random.default_rng(7)


@pytest.fixture
def hopper_ring(device):
    if "wgmma" not in device.features:
        pytest.skip(f"no GPU of Hopper: this one is {device.arch}")
    spec = importlib.util.spec_from_file_location("hopper_ring", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.hopper_ring


@pytest.mark.parametrize(
    ("shape", "width", "stages"),
    [((128, 64, 128), 64, 2), ((512, 512, 1024), 128, 4), ((256, 512, 320), 256, 3)],
)
def test_a_ring_multiplies(hopper_ring, device, shape, width, stages):
    m, n, k = shape
    kernel = build(hopper_ring(m, n, k, width=width, stages=stages), device)
    a, b = (RNG.integers(-4, 5, (rows, k)) for rows in (m, n))
    a, b = (x.astype(ml_dtypes.bfloat16) for x in (a, b))
    c = np.zeros((m, n), np.float32)
    kernel.launch(a, b, c)
    np.testing.assert_array_equal(
        c, a.astype("f4") @ b.astype("f4").T
    )  # exact: integers


@pytest.mark.parametrize("knobs", [{}, {"in_flight": 1}, {"in_flight": 0}])
@pytest.mark.parametrize("shape", [(64, 64, 128), (200, 328, 136), (512, 512, 1024)])
def test_products_of_warpgroups_read_a_transposed_operand(device, shape, knobs):
    if "wgmma" not in device.features:
        pytest.skip(f"no GPU of Hopper: this one is {device.arch}")
    m, n, k = shape
    op, given = find("nn.dense"), ((m, k), (k, n))
    workload = op.workload(*given, dtypes="f16", layout="io")
    kernel = build(default(op, workload, device, knobs)[0], device)
    x, w = (RNG.integers(-2, 3, size).astype(np.float16) for size in given)
    y = np.zeros((m, n), np.float16)
    kernel.launch(x, w, y)
    assert "wgmma" in kernel.source
    np.testing.assert_array_equal(y, x.astype("f4") @ w.astype("f4"))  # exact


@pytest.mark.parametrize("shape", [(64, 64, 64), (200, 328, 136), (512, 512, 1024)])
def test_a_gradient_multiplies(device, shape):
    m, n, k = shape
    dy, x, w = (
        RNG.integers(-1, 2, size).astype(np.float16)
        for size in ((m, n), (m, k), (n, k))
    )
    dx, dw, _ = nn.dense_grad(dy, x, w, target=device)
    dy, x, w = (each.astype("f4") for each in (dy, x, w))
    np.testing.assert_array_equal(dx, dy @ w)
    np.testing.assert_array_equal(dw, dy.T @ x)


FOLD = """
def fold(x: {T}[4096], y: InOut[{T}[5]]):
    for b in bound(16, "block.x"):
        for j in bound(256, "thread.x"):
            atomic("{OP}", y[j % 5], x[b * 256 + j])
"""


@pytest.mark.parametrize(
    ("kind", "op"),
    [
        ("i32", "add"),
        ("i64", "add"),
        ("u64", "xor"),
        ("i64", "max"),
        ("f32", "add"),
        ("f64", "add"),
        ("f32", "max"),
        ("bf16", "max"),
        ("f16", "min"),
        ("i8", "add"),
        ("u16", "or"),
    ],
)
def test_atomic_updates(device, kind, op):
    func = parse(FOLD.replace("{T}", kind).replace("{OP}", op))
    dtype = func.buffers[0].dtype.numpy
    x = RNG.integers(0, 100, 4096).astype(dtype)  # sums of these are exact
    wanted, got = np.zeros(5, dtype), np.zeros(5, dtype)
    run(func, x, wanted)
    build(func, device).launch(x, got)
    np.testing.assert_array_equal(got, wanted)
