"""Operators whose sums have a free order, run as PTX: against the same through LLVM.

A few of each family at ragged sizes; all with `pytest --ptx tests/cuda`.
"""

import numpy as np
import pytest

from tensorlang.ops import find
from tensorlang.ops.spec.examples import arguments

NEAR = {"bf16": 2.0**-7, "f16": 2.0**-9, "f32": 2.0**-16}  # of the greatest result
ROWS = ((5, 77),)


def results(op, workload, target):
    arrays, scalars = arguments(op, workload, seed=3)
    kernel = op.build(workload, target)
    kernel.launch(*arrays, *scalars)
    specs = kernel.signature.buffers
    made = [a for spec, a in zip(specs, arrays, strict=True) if spec.role != "in"]
    return made, kernel


def compared(name, dtype, shapes, near=None, **given):
    """The CUDA source of an operator whose results are LLVM's, but for rounding."""
    op = find(name)
    workload = op.workload(*shapes, dtypes=dtype, **given)
    here, _ = results(op, workload, "llvm")
    there, kernel = results(op, workload, "cuda")
    for a, b in zip(here, there, strict=True):
        assert_near(a, b, near or NEAR[dtype])
    return kernel.source


def assert_near(here, there, near):
    a, b = here.astype(np.float64), there.astype(np.float64)
    assert np.isfinite(a).all()
    assert a.any()
    np.testing.assert_allclose(b, a, rtol=0, atol=near * np.abs(a).max())


TENSOR_CORES = {
    "dense": ("nn.dense", "bf16", ((37, 64), (48, 64)), {}),
    "dense f16": ("nn.dense", "f16", ((37, 64), (48, 64)), {}),
    "turned": ("nn.dense", "bf16", ((45, 96), (96, 56)), {"layout": "io"}),
    "grad": ("nn.dense_grad", "bf16", ((37, 56), (37, 40), (56, 40)), {}),
    "matmul": ("math.matmul", "bf16", ((3, 40, 64), (3, 64, 48)), {}),
    "conv": ("nn.conv2d", "bf16", ((2, 16, 7, 9), (24, 16, 3, 3)), {}),
    "attention": (
        "nn.attention",
        "bf16",
        ((1, 4, 70, 64), (1, 2, 90, 64), (1, 2, 90, 64)),
        {"causal": True},
    ),
    "attention f16": (
        "nn.attention",
        "f16",
        ((1, 1, 9, 128), (1, 1, 150, 128), (1, 1, 150, 128)),
        {},
    ),
    "attention grad": (
        "nn.attention_grad",
        "bf16",
        ((1, 2, 70, 32), (1, 2, 70, 32), (1, 1, 90, 32), (1, 1, 90, 32)),
        {"causal": True},
    ),
    "attention grad f16": (
        "nn.attention_grad",
        "f16",
        ((1, 1, 9, 128), (1, 1, 9, 128), (1, 1, 40, 128), (1, 1, 40, 128)),
        {},
    ),
}


@pytest.mark.parametrize("case", TENSOR_CORES)
def test_products_of_tensor_cores(case, ptx_driver):
    name, dtype, shapes, given = TENSOR_CORES[case]
    source = compared(name, dtype, shapes, **given)
    for word in ("mma.sync", "ldmatrix", "cp.async"):
        assert word in source
    assert ptx_driver.issued


WARPGROUPS = {
    "matmul grad": (
        "math.matmul_grad",
        "bf16",
        ((2, 70, 64), (2, 70, 72), (2, 72, 64)),
    ),
    "matrix grad": ("math.matmul_grad", "f16", ((70, 64), (70, 72), (72, 64))),
    "einsum grad": ("math.einsum_grad", "f16", ((2, 64, 80), (2, 64, 72), (2, 72, 80))),
}


@pytest.mark.usefixtures("ptx_driver")
@pytest.mark.parametrize("case", WARPGROUPS)
def test_gradients_of_batches_by_warpgroups(case):
    name, dtype, shapes = WARPGROUPS[case]
    given = {"subscripts": "bij,bjk->bik"} if name == "math.einsum_grad" else {}
    assert "wgmma" in compared(name, dtype, shapes, **given)


@pytest.mark.usefixtures("ptx_driver")
@pytest.mark.parametrize("columns", [48, 96], ids=["warps", "warpgroups"])
def test_an_epilogue_of_fragments(columns):
    op = find("nn.dense")
    shapes = (37, 64), (columns, 64), (columns,), (2,)
    dtypes = ("bf16", "bf16", "bf16", "u32")
    how = {"activation": "gelu", "dropout": True, "key": "threefry2x32"}
    workload = op.workload(*shapes, dtypes=dtypes, **how)
    (here,), (there,) = (results(op, workload, t)[0] for t in ("llvm", "cuda"))
    np.testing.assert_array_equal(here == 0, there == 0)  # what was dropped
    assert 0.2 < (here == 0).mean() < 0.8
    assert_near(here, there, NEAR["bf16"])


@pytest.mark.usefixtures("ptx_driver")
def test_tf32_where_a_tolerance_allows_it():
    given = {"tolerance": 2.0**-10, "near": 2.0**-10}
    source = compared("nn.dense", "f32", ((37, 64), (96, 64)), **given)
    assert "tf32" in source


SIMT = {
    "dense": ("nn.dense", "f32", ((37, 64), (96, 64)), {}),
    "conv": ("nn.conv2d", "f32", ((2, 16, 7, 9), (24, 16, 3, 3)), {}),
    "softmax": ("nn.softmax", "f32", ROWS, {}),
    "softmax grad": ("nn.softmax_grad", "f32", (*ROWS, *ROWS), {}),
    "norm": ("nn.layer_norm", "f16", ((5, 77), (77,), (77,)), {}),
    # a block's threads meet in memory: the compiler must not read before the barrier
    "norm grad": (
        "nn.rms_norm_grad",
        "f32",
        ((5, 4096), (5, 4096), (4096,)),
        {},
    ),
    "sum": ("math.sum", "f32", ((3, 1000),), {}),
    "logsumexp": ("math.logsumexp", "bf16", ((3, 1000),), {}),
    "var": ("math.var", "f32", ((3, 1000),), {}),
}


@pytest.mark.parametrize("case", SIMT)
def test_sums_of_threads(case, ptx_driver):
    name, dtype, shapes, given = SIMT[case]
    compared(name, dtype, shapes, **given)
    assert ptx_driver.issued
