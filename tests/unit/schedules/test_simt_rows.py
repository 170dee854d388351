"""Rows and reductions on threads: right, coalesced, in registers, without conflicts."""

from dataclasses import replace

import numpy as np
import pytest

from tensorlang.codegen.simt.host import Launch
from tensorlang.codegen.simt.launches import is_launch
from tensorlang.codegen.simt.lower import lower
from tensorlang.ir.contents import allocations, loops
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import Load, Ramp, Seq
from tensorlang.ir.visit import walk
from tensorlang.ops import find
from tensorlang.ops.kernels.building import schedule
from tensorlang.scheduling import Knobs
from tensorlang.targets import get

GPU = get("cuda:sm_90a")
OPENCL = replace(GPU, kind="opencl", features=())
RNG = np.random.default_rng(5)


def made(name, *shapes, target=GPU, dtypes="f32", **pinned):
    op = find(name)
    workload = op.workload(*shapes, dtypes=dtypes) if shapes else op.default
    s = schedule(op, workload, target, "direct", Knobs(pinned=pinned))
    return lower(s.function, target)


def launches(func):
    stmts = func.body.stmts if isinstance(func.body, Seq) else (func.body,)
    return [Launch("k", stmt, func) for stmt in stmts if is_launch(stmt)]


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@pytest.mark.parametrize("target", [GPU, OPENCL], ids=["cuda", "opencl"])
@pytest.mark.parametrize(
    ("shape", "pinned"),
    [
        ((5, 10), {}),
        ((3, 77), {}),
        ((3, 1024), {}),
        ((5, 256), {"threads_a_row": 32, "rows_a_block": 4}),
        ((2, 300), {"threads_a_row": 64, "held": False}),
        ((2, 66), {"threads_a_row": 16, "row_lanes": 2}),
    ],
)
def test_softmax(shape, pinned, target):
    func = made("nn.softmax", shape, target=target, **pinned)
    x = RNG.normal(size=shape).astype("f4")
    y = np.full_like(x, np.nan)
    report = run(func, x.reshape(-1), y.reshape(-1), n0=shape[0])
    np.testing.assert_allclose(y, softmax(x), rtol=1e-5, atol=1e-7)
    assert sum(report.bank_conflicts.values()) == 0


@pytest.mark.parametrize(
    "name", ["nn.softmax", "nn.log_softmax", "nn.layer_norm", "nn.rms_norm"]
)
def test_a_program_of_rows_is_one_launch_that_reads_once(name):
    func = made(name)
    (launch,) = launches(func)
    assert launch.block == (256, 1, 1)
    assert {b.scope for b in allocations(launch.body)} == {"register"}
    (load,) = (n for n in walk(func) if isinstance(n, Load) and n.buffer.name == "x")
    assert load.dtype.lanes == 4
    assert isinstance(load.indices[0], Ramp)
    (steps,) = (
        loop.extent
        for loop in loops(func)
        if loop.kind == "unrolled" and load in set(walk(loop))
    )
    assert 4 * 256 * steps.value == 4096


def test_gradients_of_rows_are_one_launch_and_their_columns_another():
    assert len(launches(made("nn.softmax_grad"))) == 1
    rows, *columns = launches(made("nn.layer_norm_grad"))
    assert rows.block == (256, 1, 1)
    assert all(launch.block == (32, 8, 1) for launch in columns)


def test_short_rows_share_a_block_and_long_ones_have_many_threads():
    assert launches(made("nn.softmax", (1000, 10)))[0].block == (8, 16, 1)
    assert launches(made("nn.softmax", (64, 128)))[0].block == (32, 4, 1)
    (launch,) = launches(made("nn.softmax", (64, 1 << 17)))
    assert launch.block == (1024, 1, 1)
    assert not [b for b in allocations(launch.body) if b.name == "e"]


def test_narrow_numbers_come_eight_at_a_time():
    func = made("nn.softmax", (64, 2048), dtypes="bf16")
    loads = [n for n in walk(func) if isinstance(n, Load) and n.buffer.name == "x"]
    assert {n.dtype.lanes for n in loads} == {8}


@pytest.mark.parametrize("target", [GPU, OPENCL], ids=["cuda", "opencl"])
@pytest.mark.parametrize("n", [0, 1, 5, 2053])
def test_one_sum_of_all(n, target):
    func = made("optim.sum_of_squares", (1 << 20,), target=target, part_steps=2)
    x, y = RNG.normal(size=n).astype("f4"), np.full(1, np.nan)
    run(func, x, y, n0=n)
    np.testing.assert_allclose(y, [np.square(x).sum()], rtol=1e-5)


def test_one_sum_goes_in_two_launches_of_wide_loads():
    first, second = launches(made("optim.sum_of_squares"))
    assert first.block == second.block == (256, 1, 1)
    wide = [n for n in walk(first.nest) if isinstance(n, Load) and n.dtype.lanes == 4]
    assert wide


@pytest.mark.parametrize("rows", [1, 7, 70])
def test_columns_of_a_matrix(rows):
    sizes = {"rows_of_a_part": 64, "groups": 4}
    func = made("nn.rms_norm_grad", (512, 96), (512, 96), (96,), **sizes)
    dy, x = (RNG.normal(size=(rows, 96)).astype("f4") for _ in range(2))
    weight, dx = RNG.normal(size=96).astype("f4"), np.empty((rows, 96), "f4")
    dweight = np.full(96, np.nan, "f4")
    arrays = (dy, x, weight, dx, dweight)
    report = run(func, *(a.reshape(-1) for a in arrays), eps=1e-5, n0=rows)
    unit = x / np.sqrt(np.square(x).mean(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(dweight, (dy * unit).sum(0), rtol=1e-4, atol=1e-5)
    assert sum(report.bank_conflicts.values()) == 0


def test_what_lies_along_a_known_length_is_wide_beside_what_does_not():
    func = made("nn.batch_norm")
    lanes = {
        node.buffer.name: node.dtype.lanes
        for launch in launches(func)
        for node in walk(launch.nest)
        if isinstance(node, Load) and node.buffer.name in ("x", "mean", "bias")
        if isinstance(node.indices[0], Ramp) or node.buffer.name != "x"
    }
    assert lanes == {"x": 4, "mean": 1, "bias": 1}


def test_weights_of_a_depthwise_convolution_are_a_block_each():
    op = find("nn.conv2d_grad_weight")
    workload = op.workload((8, 64, 56, 56), (8, 64, 58, 58), window=3, groups=64)
    s = schedule(op, workload, GPU, "direct", Knobs())
    parts, launch = launches(lower(s.function, GPU))
    assert [repr(count) for count in parts.grid] == ["n0 * 64", "1", "1"]
    assert [repr(count) for count in launch.grid] == ["576", "1", "1"]
    assert launch.block == (128, 1, 1)
