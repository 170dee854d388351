"""Tiles of windows, run as PTX: nothing outside is read, and all is right."""

import numpy as np
import pytest

from tensorlang.ops import find
from tensorlang.ops.spec.examples import arguments

NEAR = {"bf16": 2.0**-7, "f16": 2.0**-9, "f32": 2.0**-16}
THIN = {"padding": 1, "groups": 4}
POOL = {"kernel": 3, "stride": 2, "padding": 1}
LAST = {"layout": "NHWC"}
SUMS = THIN | {"window": (3, 3)}
WINOGRAD = {"padding": 1, "tolerance": 2.0**-12}
CASES = {
    "depthwise": ("nn.conv2d", "f32", ((2, 4, 8, 8), (4, 1, 3, 3)), THIN),
    "odd": ("nn.conv2d", "bf16", ((2, 4, 7, 5), (4, 1, 3, 3)), THIN | {"stride": 2}),
    "last": ("nn.conv2d", "f16", ((2, 5, 8, 4), (4, 1, 3, 3)), THIN | LAST),
    "images": (
        "nn.conv2d_grad_data",
        "f32",
        ((2, 4, 4, 4), (4, 1, 3, 3)),
        THIN | {"stride": 2, "size": (8, 8)},
    ),
    "weights": ("nn.conv2d_grad_weight", "f32", ((3, 4, 8, 8),) * 2, SUMS),
    "weights last": (
        "nn.conv2d_grad_weight",
        "bf16",
        ((2, 6, 5, 4),) * 2,
        SUMS | LAST,
    ),
    "largest grad": (
        "nn.max_pool2d_grad",
        "f32",
        ((2, 3, 4, 8), (2, 3, 8, 16)),
        POOL,
    ),
    "mean grad": (
        "nn.avg_pool2d_grad",
        "bf16",
        ((2, 3, 4, 8), (2, 3, 8, 16)),
        POOL,
    ),
    "winograd": ("nn.conv2d", "f32", ((1, 32, 4, 4), (32, 32, 3, 3)), WINOGRAD),
    "padded": ("nn.pad", "f32", ((3, 40, 30),), {"padding": (0, 0, 1, 1, 2, 0)}),
}


def results(op, workload, target):
    arrays, scalars = arguments(op, workload, seed=3)
    kernel = op.build(workload, target)
    kernel.launch(*arrays, *scalars)
    specs = kernel.signature.buffers
    return [a for spec, a in zip(specs, arrays, strict=True) if spec.role != "in"]


@pytest.mark.usefixtures("ptx_driver")
@pytest.mark.parametrize("case", CASES)
def test_as_on_the_processor(case):
    name, dtype, shapes, given = CASES[case]
    op = find(name)
    workload = op.workload(*shapes, dtypes=dtype, **given)
    pairs = zip(*(results(op, workload, t) for t in ("llvm", "cuda")), strict=True)
    near = max(NEAR[dtype], 2 * given.get("tolerance", 0.0))
    for here, there in pairs:
        a, b = here.astype("f8"), there.astype("f8")
        assert a.any()
        np.testing.assert_allclose(b, a, rtol=0, atol=near * np.abs(a).max())
