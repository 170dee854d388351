"""Tiles of windows as threads run them: loads behind conditions stay inside."""

import pytest

from tensorlang.ops import find
from tensorlang.ops.kernels.building import default, preferred
from tensorlang.ops.nn.winograd_matrices import TRANSFORMS
from tensorlang.runtime import build
from tensorlang.tuner.correctness.gate import Gate

THIN = {"padding": 1, "groups": 4}
CASES = {
    "depthwise": ("nn.conv2d", ((3, 4, 12, 12), (4, 1, 3, 3)), THIN, "f32"),
    "odd": ("nn.conv2d", ((2, 4, 7, 7), (4, 1, 3, 3)), THIN | {"stride": 2}, "f32"),
    "last": (
        "nn.conv2d",
        ((2, 6, 8, 4), (4, 1, 3, 3)),
        THIN | {"layout": "NHWC"},
        "f16",
    ),
    "grouped": ("nn.conv2d", ((2, 8, 8, 8), (8, 2, 3, 3)), THIN, "f32"),
    "gradient": (
        "nn.conv2d_grad_data",
        ((2, 4, 4, 4), (4, 1, 3, 3)),
        THIN | {"stride": 2, "size": (8, 8)},
        "f32",
    ),
    "largest": (
        "nn.max_pool2d",
        ((2, 3, 13, 16),),
        {"kernel": 3, "stride": 2, "padding": 1},
        "f32",
    ),
    "largest_grad": (
        "nn.max_pool2d_grad",
        ((2, 3, 6, 8), (2, 3, 12, 16)),
        {"kernel": 3, "stride": 2, "padding": 1},
        "f32",
    ),
    "weights": (
        "nn.conv2d_grad_weight",
        ((3, 4, 8, 8),) * 2,
        THIN | {"window": (3, 3)},
        "f32",
    ),
    "mean": ("nn.avg_pool2d", ((2, 3, 9, 16),), {"kernel": 3, "stride": 2}, "f32"),
}


@pytest.mark.parametrize("name", CASES)
def test_as_float64(name, gpu_like):
    id, shapes, attributes, dtype = CASES[name]
    op = find(id)
    workload = op.workload(*shapes, dtypes=dtype, **attributes)
    schedule = default(op, workload, gpu_like, {})[0]
    assert {"window_columns", "sum_columns", "pixel_columns"} & set(schedule.knobs)
    gate = Gate(op, workload, op.algorithms["direct"].tolerance)
    assert gate.check(build(schedule, gpu_like), gate.compiled(workload)) <= 1.0


def test_winograd_in_stages(gpu_like):
    op, near = find("nn.conv2d"), TRANSFORMS[4].tolerance
    shapes = (2, 32, 8, 12), (32, 32, 3, 3)
    workload = op.workload(*shapes, padding=1, tolerance=near)
    assert preferred(op, workload, gpu_like) == "winograd43_nonfused"
    kernel = build(default(op, workload, gpu_like, {})[0], gpu_like)
    gate = Gate(op, workload, near)
    assert gate.check(kernel, gate.compiled(workload)) <= 1.0
    assert kernel.resources["launches"] == 4
