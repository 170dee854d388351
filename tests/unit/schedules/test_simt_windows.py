"""Windows in tiles of a thread: right in all layouts, each pixel loaded once."""

import numpy as np
import pytest

from tensorlang.codegen.simt.lower import lower
from tensorlang.ir.interpreter import run
from tensorlang.ops import find
from tensorlang.ops.building import default
from tensorlang.runtime.describing import signature_of
from tensorlang.targets import get
from tensorlang.tuner.gate import Gate

GPU = get("cuda:sm_90a")
LAST = {"layout": "NHWC"}
THIN = {"padding": 1, "groups": 4}
NEAR = {"f64": 1e-12, "f32": 1e-5, "f16": 2**-9, "bf16": 2**-7}
POOL = {"kernel": 3, "stride": 2, "padding": 1}
# operator, shapes, attributes, type, knobs
CASES = {
    "depthwise": ("nn.conv2d", ((2, 4, 6, 8), (4, 1, 3, 3)), THIN, "f32", {}),
    "tall": (
        "nn.conv2d",
        ((1, 4, 7, 8), (4, 1, 3, 3)),
        THIN,
        "f32",
        {"window_rows": 3, "window_columns": 8, "window_threads": 64},
    ),
    "strided": (
        "nn.conv2d",
        ((1, 4, 9, 16), (4, 1, 3, 3)),
        THIN | {"stride": 2},
        "f32",
        {},
    ),
    "odd": (
        "nn.conv2d",
        ((1, 4, 5, 7), (4, 1, 5, 3)),
        {"padding": (2, 1), "groups": 4, "dilation": (1, 2)},
        "f32",
        {"window_columns": 2},
    ),
    "bias": (
        "nn.conv2d",
        ((1, 4, 4, 8), (4, 1, 3, 3), (4,)),
        THIN | {"activation": "relu"},
        "bf16",
        {},
    ),
    "last": ("nn.conv2d", ((2, 6, 8, 4), (4, 1, 3, 3)), THIN | LAST, "f32", {}),
    "last_half": ("nn.conv2d", ((1, 5, 6, 4), (4, 1, 3, 3)), THIN | LAST, "f16", {}),
    "grouped": ("nn.conv2d", ((1, 8, 4, 8), (8, 2, 3, 3)), THIN, "f32", {}),
    "grouped_last": ("nn.conv2d", ((1, 4, 8, 8), (8, 2, 3, 3)), THIN | LAST, "f32", {}),
    "line": ("nn.conv1d", ((2, 4, 20), (4, 1, 3)), THIN, "f32", {}),
    "volume": ("nn.conv3d", ((1, 4, 3, 4, 8), (4, 1, 3, 3, 3)), THIN, "f32", {}),
    "gradient": (
        "nn.conv2d_grad_data",
        ((1, 4, 4, 4), (4, 1, 3, 3)),
        THIN | {"stride": 2, "size": (8, 8)},
        "f32",
        {},
    ),
    "largest": ("nn.max_pool2d", ((2, 2, 9, 16),), POOL, "f32", {}),
    "largest_last": ("nn.max_pool2d", ((1, 8, 9, 4),), POOL | LAST, "f32", {}),
    "largest_half": ("nn.max_pool2d", ((1, 3, 8, 16),), {"kernel": 2}, "bf16", {}),
    "mean": ("nn.avg_pool2d", ((2, 2, 9, 16),), POOL, "f32", {}),
    "mean_double": ("nn.avg_pool1d", ((2, 2, 10),), {"kernel": 2}, "f64", {}),
}


def workload_of(name):
    id, shapes, attributes, dtype, knobs = CASES[name]
    op = find(id)
    return op, op.workload(*shapes, dtypes=dtype, **attributes), knobs


@pytest.mark.parametrize("name", CASES)
def test_tiles_of_windows(name):
    op, workload, knobs = workload_of(name)
    gate = Gate(op, workload, op.algorithms["direct"].tolerance)
    case = gate.compiled(workload)
    made = default(op, workload, GPU, knobs)[0]
    assert {"window_columns", "window_threads"} <= set(made.knobs)
    func = made.function
    sizes = op.sizes(workload)
    scalars = {s.name: sizes[s.name] for s in signature_of(func).scalars}
    arrays = [array.copy() for array in case.inputs]
    run(lower(func, GPU), *(array.reshape(-1) for array in arrays), **scalars)
    for number, expected in zip(case.outputs, case.expected, strict=True):
        got, wide = np.asarray(arrays[number], "f8"), np.asarray(expected, "f8")
        rtol = NEAR[CASES[name][3]]
        np.testing.assert_allclose(got, wide, rtol=rtol, atol=rtol * np.abs(wide).max())
