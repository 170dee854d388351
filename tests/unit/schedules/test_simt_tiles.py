"""Tiled products for threads: right, without races, and without bank conflicts."""

from functools import cache

import numpy as np
import pytest

from tensorlang.codegen.simt.host import launches
from tensorlang.codegen.simt.lower import lower
from tensorlang.errors import InterpreterError
from tensorlang.ir.contents import allocations
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import Alloc, Barrier, Const, Load, Ramp, Seq, seq
from tensorlang.ir.text.parser import parse
from tensorlang.ir.visit import transform, walk
from tensorlang.ops import find
from tensorlang.ops.kernels.building import default, schedule
from tensorlang.runtime.describing import signature_of
from tensorlang.scheduling import Knobs
from tensorlang.targets import get
from tensorlang.tuner.correctness.gate import Gate

GPU = get("cuda:sm_80")
SMALL = {"rows": 4, "columns": 4, "warps": 4, "depth": 8, "part": 0}
PARTED = SMALL | {"part": 256, "depth": 32}
FORMS = {
    "dense": ("nn.dense", ((70, 37), (90, 37))),
    "dense_grad": ("nn.dense_grad", ((70, 66), (70, 17), (66, 17))),
    "matmul": ("math.matmul", ((2, 40, 33), (2, 33, 50))),
    "turned": ("nn.dense_grad", ((20, 18), (20, 17), (18, 17))),
    "conv1d": ("nn.conv1d", ((2, 5, 70), (20, 5, 3))),
    "conv2d": ("nn.conv2d", ((2, 4, 9, 12), (17, 4, 3, 3))),
    "conv2d_last": ("nn.conv2d", ((2, 9, 12, 8), (17, 8, 3, 3)), {"layout": "NHWC"}),
    "conv3d": ("nn.conv3d", ((1, 3, 5, 6, 7), (16, 3, 2, 2, 2))),
    "conv2d_grad_weight": (
        "nn.conv2d_grad_weight",
        ((1, 20, 5, 6), (1, 5, 7, 8)),
        {"window": 3},
    ),
}


@cache
def lowered(rows=4, columns=4, depth=8, k=32, **more):
    op = find("nn.dense")
    workload = op.workload((64, k), (32, k))
    pinned = {"rows": rows, "columns": columns, "depth": depth, **more}
    knobs = Knobs(pinned=pinned)
    return lower(schedule(op, workload, GPU, "direct", knobs).function, GPU)


def outcome(func, m=37, k=32):
    generator = np.random.default_rng(0)
    x, w = (generator.normal(size=s).astype("f4") for s in ((m, k), (32, k)))
    y = np.full((m, 32), np.nan, "f4")
    report = run(func, x.reshape(-1), w.reshape(-1), y.reshape(-1), n0=m)
    np.testing.assert_allclose(y, x @ w.T, rtol=1e-5, atol=1e-5)
    return report


@pytest.mark.parametrize("warps", [2, 4])
@pytest.mark.parametrize("sizes", [(4, 8, 8), (8, 4, 32), (8, 8, 16)])
def test_tiles_of_all_sizes_meet_in_no_bank(sizes, warps):
    report = outcome(lowered(*sizes, warps=warps))
    assert report.barriers > 0
    assert set(report.bank_conflicts) == {"x_y", "w_y"}
    assert sum(report.bank_conflicts.values()) == 0


@pytest.mark.parametrize("name", [n for n in FORMS if n != "turned"])
def test_contractions_of_all_forms_and_ragged_sizes(name):
    id, shapes, *attributes = FORMS[name]
    as_compiled(find(id), shapes, SMALL, *attributes)


def test_parts_of_the_steps_are_folded_in_their_order():
    as_compiled(find("nn.dense"), ((16, 270), (20, 270)), PARTED)


@pytest.mark.parametrize("k", [96, 4099])
def test_one_row_and_what_follows_it_are_one_launch(k):
    op = find("nn.dense")
    shapes = (1, k), (20, k), (20,)
    as_compiled(op, shapes, {}, {"activation": "gelu"})
    workload = op.workload(*shapes, activation="gelu", dtypes="bf16")
    func = schedule(op, workload, GPU, "direct", Knobs()).function
    assert len(launches(lower(func, GPU))) == 1


def as_compiled(op, shapes, pinned, attributes=None):
    """What threads do is what the plain loops do, without a bank conflict."""
    workload = op.workload(*shapes, **(attributes or {}))
    gate = Gate(op, workload, op.algorithms["direct"].tolerance)
    case = gate.compiled(workload)
    (given,) = case.runs
    func = default(op, workload, GPU, pinned)[0].function
    sizes = op.sizes(workload)
    scalars = {s.name: sizes[s.name] for s in signature_of(func).scalars}
    arrays = [array.copy() for array in given.inputs]
    made = lower(func, GPU)
    report = run(made, *(array.reshape(-1) for array in arrays), **scalars)
    assert report.barriers > 0
    assert sum(report.bank_conflicts.values()) == 0
    for number, expected in zip(case.outputs, given.expected, strict=True):
        assert expected.wrong(arrays[number]) is None


def test_steps_in_parts_are_launches_of_their_own():
    op = find("nn.conv2d_grad_weight")
    made = schedule(op, op.default, GPU, "direct", Knobs())
    assert made.knobs["part"] == 1024
    blocks = [loop for loop in walk(made.function) if getattr(loop, "thread", "")]
    assert "block.z" in {loop.thread for loop in blocks}


@pytest.mark.parametrize(("columns", "groups"), [(256, 1), (640, 5), (704, 1)])
def test_blocks_of_some_columns_go_through_all_rows_first(columns, groups):
    op, shapes = find("nn.dense"), ((40, 32), (columns, 32))
    pinned = {"rows": 4, "columns": 4, "depth": 8, "part": 0, "group": 4}
    as_compiled(op, shapes, pinned)
    func = default(op, op.workload(*shapes), GPU, pinned)[0].function
    (launch,) = launches(lower(func, GPU))
    x, _, z = (int(n.value) if isinstance(n, Const) else None for n in launch.grid)
    assert (x * z, z) == (columns // 64, groups)


@pytest.mark.parametrize(("size", "columns"), [(1024, 4), (2048, 8)])
def test_few_results_have_smaller_tiles(size, columns):
    op = find("nn.dense_grad")
    workload = op.workload((64, size), (64, size), (size, size))
    made = schedule(op, workload, GPU, "direct", Knobs())
    assert (made.knobs["columns"], made.knobs["columns_dw"]) == (8, columns)
    narrow = op.workload((64, size), (64, size), (size, size), dtypes="bf16")
    knobs = schedule(op, narrow, GPU, "direct", Knobs()).knobs
    assert knobs["block_columns"] == 128
    assert knobs["block_columns_dw_sum"] == 16 * columns


def test_channels_that_come_last_are_read_side_by_side():
    op = find("nn.conv2d")
    workload = op.workload((8, 58, 58, 64), (64, 64, 3, 3), layout="NHWC")
    func = lower(schedule(op, workload, GPU, "direct", Knobs()).function, GPU)
    loads = [n for n in walk(func) if isinstance(n, Load) and n.buffer.name == "x"]
    assert {load.dtype.lanes for load in loads} == {4}


def test_no_matrix_is_gathered_in_memory():
    op = find("nn.conv2d")
    func = lower(schedule(op, op.default, GPU, "direct", Knobs()).function, GPU)
    assert {b.scope for b in allocations(func)} == {"shared", "register"}


def test_what_follows_a_product_takes_sums_from_registers():
    op = find("nn.dense")
    workload = op.workload((64, 64), (64, 64), (64,), activation="gelu")
    func = lower(schedule(op, workload, GPU, "direct", Knobs()).function, GPU)
    assert {b.scope for b in allocations(func)} == {"shared", "register"}


def test_sums_are_registers_and_operands_shared():
    scopes = {b.name: b.scope for b in allocations(lowered())}
    assert scopes["y_global_shared"] == scopes["x_y_register"] == "register"
    assert scopes["x_y"] == scopes["w_y"] == "shared"


@pytest.mark.parametrize(
    ("name", "sums"), [("dense", (16, 8)), ("matmul", (8, 16)), ("turned", (16, 4))]
)
def test_operands_that_lie_either_way_meet_in_no_bank(name, sums):
    id, shapes = FORMS[name]
    pinned = {"rows": sums[0], "columns": sums[1], "depth": 8, "part": 0}
    as_compiled(find(id), shapes, pinned)


def test_the_usual_tile_has_16_by_8_sums_and_wide_loads():
    op = find("nn.dense")
    made = schedule(op, op.default, GPU, "direct", Knobs())
    assert (made.knobs["rows"], made.knobs["columns"]) == (16, 8)
    func = lower(made.function, GPU)
    wide = [n for n in walk(func) if isinstance(n, Load) and n.dtype.lanes == 4]
    assert all(isinstance(load.indices[0], Ramp) for load in wide)
    memory = {load.buffer.name for load in wide if load.buffer.scope != "register"}
    assert memory == {"x", "w", "x_y", "w_y"}


@pytest.mark.parametrize(("stages", "barriers"), [(1, 2), (3, 1)])
def test_each_missing_barrier_is_found(stages, barriers):
    func = lowered(stages=stages)
    count = sum(isinstance(node, Barrier) for node in walk(func))
    assert count == barriers
    for number in range(count):
        left = iter(range(count))

        def without(node, number=number, left=left):
            if not isinstance(node, Seq):
                return node
            kept = (
                stmt
                for stmt in node.stmts
                if not isinstance(stmt, Barrier) or next(left) != number
            )
            return seq(*kept)

        with pytest.raises(InterpreterError, match=r"written|race|read"):
            outcome(transform(func, without))


def test_scratch_that_threads_share_stays_shared():
    func = parse("""
def turn(x: f32[64], y: Out[f32[64]]):
    for b in bound(1, "block.x"):
        t = alloc(f32[64], scope="shared")
        for i in bound(32, "thread.x"):
            for a in range(2):
                t[i * 2 + a] = x[i * 2 + a]
        for i in bound(32, "thread.x"):
            for a in range(2):
                y[i * 2 + a] = t[63 - i * 2 - a]
""")
    made = lower(func, GPU)
    (scratch,) = [n.buffer for n in walk(made) if isinstance(n, Alloc)]
    assert scratch.scope == "shared"
    x, y = np.arange(64, dtype="f4"), np.zeros(64, "f4")
    run(made, x, y)
    np.testing.assert_array_equal(y, x[::-1])


def test_axes_that_are_parts_of_loops_are_left_to_other_schedules():
    """A transposed convolution of single pixels in steps that skip most of them."""
    op = find("nn.conv3d_transpose_grad")
    shapes = (2, 1, 3, 5, 5), (2, 16, 1, 1, 3), (16, 1, 3, 5, 3)
    given = {"stride": (4, 1, 2), "padding": (0, 4, 1), "dilation": (1, 3, 1)}
    workload = op.workload(*shapes, dtypes="f16", **given)
    assert launches(lower(default(op, workload, GPU, {})[0].function, GPU))
