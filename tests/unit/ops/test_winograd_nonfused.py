"""Winograd's convolution in stages: as the plain one, and chosen for GPUs alone."""

import numpy as np
import pytest

from tensorlang import targets
from tensorlang.ir.interpreter import run
from tensorlang.ops import find
from tensorlang.ops.kernels.building import preferred
from tensorlang.ops.nn.winograd_matrices import TRANSFORMS

GPU, CPU = targets.get("cuda:sm_90a"), targets.get("llvm")
ALLOWED = {m: t.tolerance for m, t in TRANSFORMS.items()}


@pytest.mark.parametrize("m", TRANSFORMS)
@pytest.mark.parametrize("padding", [1, (0, 2, 2, 0)])
def test_as_the_plain_sums(m, padding):
    op = find("nn.conv2d")
    many = {2: 128, 4: 32}[m]
    shapes = ((1, many, 4, 8), (many, many, 3, 3), (many,))
    way = {"padding": padding, "activation": "relu" if padding != 1 else None}
    workload = op.workload(*shapes, tolerance=ALLOWED[m], **way)
    generator = np.random.default_rng(0)
    x, w, b = (generator.normal(size=shape).astype("f4") for shape in shapes)
    made = {}
    for name in ("direct", f"winograd{m}3_nonfused"):
        y = np.full((1, many, 4, 8), np.nan, "f4")
        run(op.function(workload, name), x, w, b, y)
        made[name] = y
    expected, got = made.values()
    near = ALLOWED[m] * np.abs(expected).mean()
    np.testing.assert_allclose(got, expected, rtol=ALLOWED[m], atol=near)


@pytest.mark.parametrize(
    ("shapes", "tolerance", "name"),
    [
        (((8, 64, 56, 56), (64, 64, 3, 3)), 1e-2, "winograd43_nonfused"),
        (((8, 256, 14, 14), (256, 256, 3, 3)), 1e-2, "winograd23_nonfused"),
        (((8, 64, 14, 14), (64, 64, 3, 3)), 1e-2, "direct"),  # tiles are ragged
        (((8, 16, 56, 56), (64, 16, 3, 3)), 1e-2, "direct"),  # there is little to save
        (((8, 256, 56, 56), (256, 256, 3, 3)), 1e-4, "winograd23_nonfused"),
        (((8, 64, 56, 56), (64, 64, 3, 3)), None, "direct"),
    ],
)
def test_where_it_is_preferred(shapes, tolerance, name):
    op = find("nn.conv2d")
    workload = op.workload(*shapes, padding=1, tolerance=tolerance)
    assert preferred(op, workload, GPU) == name
    assert "nonfused" not in preferred(op, workload, CPU)
