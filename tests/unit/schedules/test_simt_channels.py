"""Convolutions on tensor cores, whichever way channels lie: right, and copied wide."""

import pytest

from tensorlang.codegen.simt.lower import lower
from tensorlang.ir.contents import allocations
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import Store
from tensorlang.ir.visit import walk
from tensorlang.ops import find
from tensorlang.ops.kernels.building import default
from tensorlang.runtime.describing import signature_of
from tensorlang.targets import get
from tensorlang.tuner.correctness.gate import Gate

GPU = get("cuda:sm_80")
TILE = {
    "block_rows": 32,
    "block_columns": 32,
    "depth": 16,
    "warp_rows": 1,
    "warp_columns": 1,
    "stages": 2,
}
CASES = {
    "first": ("nn.conv2d", ((2, 16, 5, 6), (17, 16, 3, 3)), {}),
    "last": ("nn.conv2d", ((2, 5, 6, 16), (24, 16, 3, 3)), {"layout": "NHWC"}),
    "framed": ("nn.conv2d", ((2, 16, 5, 6), (16, 16, 3, 3)), {"padding": 1}),
    "framed, last": (
        "nn.conv2d",
        ((2, 5, 6, 16), (16, 16, 3, 3)),
        {"padding": (2, 1), "stride": 2, "layout": "NHWC"},
    ),
    "groups": (
        "nn.conv2d",
        ((2, 32, 3, 4), (32, 16, 3, 3)),
        {"padding": 1, "groups": 2},
    ),
    "groups, last": (
        "nn.conv2d",
        ((2, 3, 4, 32), (32, 16, 3, 3)),
        {"padding": 1, "groups": 2, "layout": "NHWC"},
    ),
    "weights": (
        "nn.conv2d_grad_weight",
        ((2, 16, 5, 6), (2, 32, 5, 6)),
        {"padding": 1, "window": (3, 3)},
    ),
    "weights, last": (
        "nn.conv2d_grad_weight",
        ((2, 5, 6, 16), (2, 5, 6, 32)),
        {"padding": 1, "window": (3, 3), "layout": "NHWC"},
    ),
    "line": ("nn.conv1d", ((2, 16, 20), (16, 16, 3)), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_channels_are_copied_side_by_side(name):
    id, shapes, attributes = CASES[name]
    op = find(id)
    workload = op.workload(*shapes, dtypes="bf16", **attributes)
    gate = Gate(op, workload, op.algorithms["direct"].tolerance)
    case = gate.compiled(workload)
    (given,) = case.runs
    func = default(op, workload, GPU, TILE)[0].function
    sizes = op.sizes(workload)
    scalars = {s.name: sizes[s.name] for s in signature_of(func).scalars}
    arrays = [array.copy() for array in given.inputs]
    made = lower(func, GPU)
    report = run(made, *(array.reshape(-1) for array in arrays), **scalars)
    for number, expected in zip(case.outputs, given.expected, strict=True):
        assert expected.wrong(arrays[number]) is None
    assert sum(report.bank_conflicts.values()) == 0
    copies = [n for n in walk(made) if isinstance(n, Store) and "async" in n.hints]
    assert copies
    assert {n.value.dtype.lanes for n in copies} == {8}


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_images_with_zeros_around_are_never_in_memory(dtype, layout):
    op, image = find("nn.conv2d"), (2, 16, 16, 16)
    workload = op.workload(
        image, (16, 16, 3, 3), dtypes=dtype, padding=1, layout=layout
    )
    func = default(op, workload, GPU, TILE if dtype == "bf16" else {})[0].function
    assert "padded" not in {b.name for b in allocations(func)}
