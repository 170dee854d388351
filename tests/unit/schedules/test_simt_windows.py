"""Windows in tiles of a thread: right in all layouts, each pixel loaded once."""

import pytest

from tensorlang.codegen.simt.lower import lower
from tensorlang.ir.contents import allocations
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import as_expr
from tensorlang.ops import find
from tensorlang.ops.kernels.building import default
from tensorlang.runtime.describing import signature_of
from tensorlang.targets import get
from tensorlang.tuner.correctness.gate import Gate

GPU = get("cuda:sm_90a")
LAST = {"layout": "NHWC"}
THIN = {"padding": 1, "groups": 4}
NEAR = {"f64": 1e-12, "f32": 1e-5, "f16": 2**-9, "bf16": 2**-7}
BLOCKS = {"kernel": 10, "stride": 10}
SUMS = {"padding": 1, "groups": 4, "window": (3, 3)}
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
    "grouped_bias": (
        "nn.conv2d",
        ((1, 8, 4, 8), (8, 2, 3, 3), (8,)),
        THIN | {"activation": "relu"},
        "f32",
        {},
    ),
    "large": ("nn.avg_pool2d", ((3, 1, 20, 30),), BLOCKS, "f32", {}),
    "large_last": ("nn.max_pool2d", ((1, 10, 20, 4),), BLOCKS | LAST, "f32", {}),
    "line": ("nn.conv1d", ((2, 4, 20), (4, 1, 3)), THIN, "f32", {}),
    "volume": ("nn.conv3d", ((1, 4, 3, 4, 8), (4, 1, 3, 3, 3)), THIN, "f32", {}),
    "gradient": (
        "nn.conv2d_grad_data",
        ((1, 4, 4, 4), (4, 1, 3, 3)),
        THIN | {"stride": 2, "size": (8, 8)},
        "f32",
        {},
    ),
    "weights": ("nn.conv2d_grad_weight", ((3, 4, 8, 8),) * 2, SUMS, "f32", {}),
    "weights_turns": (
        "nn.conv2d_grad_weight",
        ((2, 4, 8, 8),) * 2,
        SUMS,
        "f32",
        {"sum_rows": 2, "sum_turns": 2},
    ),
    "weights_last": (
        "nn.conv2d_grad_weight",
        ((2, 8, 6, 4),) * 2,
        SUMS | LAST,
        "f16",
        {},
    ),
    "weights_odd": (
        "nn.conv2d_grad_weight",
        ((2, 4, 5, 3), (2, 4, 9, 5)),
        SUMS | {"stride": 2},
        "f32",
        {},
    ),
    "weights_grouped": (
        "nn.conv2d_grad_weight",
        ((2, 8, 4, 8),) * 2,
        SUMS | {"groups": 2},
        "f32",
        {},
    ),
    "weights_line": (
        "nn.conv1d_grad_weight",
        ((3, 4, 20),) * 2,
        {"padding": 1, "groups": 4, "window": 3},
        "bf16",
        {},
    ),
    "weights_volume": (
        "nn.conv3d_grad_weight",
        ((1, 4, 3, 4, 4),) * 2,
        {"padding": 1, "groups": 4, "window": (3, 3, 3)},
        "f32",
        {},
    ),
    "largest": ("nn.max_pool2d", ((2, 2, 9, 16),), POOL, "f32", {}),
    "largest_last": ("nn.max_pool2d", ((1, 8, 9, 4),), POOL | LAST, "f32", {}),
    "largest_grad": (
        "nn.max_pool2d_grad",
        ((2, 2, 4, 8), (2, 2, 8, 16)),
        POOL,
        "f32",
        {},
    ),
    "largest_grad_last": (
        "nn.max_pool2d_grad",
        ((1, 4, 4, 4), (1, 8, 8, 4)),
        POOL | LAST,
        "f32",
        {},
    ),
    "largest_grad_odd": (
        "nn.max_pool2d_grad",
        ((1, 2, 2, 3), (1, 2, 7, 9)),
        {"kernel": 3, "stride": 3},
        "bf16",
        {"pixel_threads": 64},
    ),
    "mean_grad": (
        "nn.avg_pool2d_grad",
        ((2, 2, 4, 8), (2, 2, 8, 16)),
        POOL | {"count_include_pad": False},
        "f32",
        {},
    ),
    "mean_grad_line": (
        "nn.avg_pool1d_grad",
        ((2, 2, 9), (2, 2, 10)),
        {"kernel": 2, "stride": 1},
        "f64",
        {},
    ),
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
    (given,) = case.runs
    made = default(op, workload, GPU, knobs)[0]
    assert {"window_columns", "sum_columns", "pixel_columns"} & set(made.knobs)
    func = made.function
    sizes = op.sizes(workload)
    scalars = {s.name: sizes[s.name] for s in signature_of(func).scalars}
    arrays = [array.copy() for array in given.inputs]
    run(lower(func, GPU), *(array.reshape(-1) for array in arrays), **scalars)
    for number, expected in zip(case.outputs, given.expected, strict=True):
        assert expected.wrong(arrays[number]) is None


def test_whole_lines_are_folded_by_threads_together():
    op = find("nn.global_avg_pool")
    lines = default(op, op.workload((8, 64, 7, 7), layout="NCHW"), GPU, {})[0].knobs
    assert "threads_a_row" in lines
    last = op.workload((8, 7, 7, 64), layout="NHWC")
    assert "window_threads" in default(op, last, GPU, {})[0].knobs


def test_what_is_one_place_has_one_remainder():
    """A thread's place in a fused loop: its digits are fixed, and so are its pixels."""
    op, workload, _ = workload_of("weights_odd")
    func = default(op, workload, GPU, {})[0].function
    held = {b.name: b.shape for b in allocations(func) if b.scope == "register"}
    assert held["dy_register"] == tuple(map(as_expr, (1, 1, 5, 1)))


def test_weights_that_are_no_images_are_none_of_a_gradient():
    """A result one pixel wide: its weights lie in fewer dimensions than the images."""
    op = find("nn.conv2d")
    thin = {"stride": 3, "groups": 16}
    workload = op.workload((3, 16, 12, 5), (16, 1, 3, 3), **thin)
    made = default(op, workload, GPU, {})[0]
    assert not {"sum_columns", "sum_rows"} & set(made.knobs)
