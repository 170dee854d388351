"""Products on tensor cores: right, without races, bank conflicts or detours."""

from collections import Counter

import numpy as np
import pytest

from tensorlang.codegen.c_family.render import render
from tensorlang.codegen.simt.host import launches
from tensorlang.codegen.simt.lower import lower
from tensorlang.errors import InterpreterError, ScheduleError
from tensorlang.ir.contents import allocations
from tensorlang.ir.interpreter import run
from tensorlang.ir.mma import tf32
from tensorlang.ir.nodes import Barrier, Call, Evaluate, Seq, Store, seq
from tensorlang.ir.visit import transform, walk
from tensorlang.ops import find
from tensorlang.ops.kernels.building import preferred, schedule
from tensorlang.ops.nn.dense import TF32_TOLERANCE
from tensorlang.schedules.simt.tensor_cores import tensor_cores
from tensorlang.schedules.stages import stages
from tensorlang.scheduling import Knobs, Schedule
from tensorlang.targets import get, host

GPU = get("cuda:sm_80")
SMALL = {"block_rows": 64, "block_columns": 64}


def dense(shapes, dtype="bf16", knobs=SMALL, algorithm="direct", **attributes):
    """A dense layer on tensor cores, as launches."""
    op = find("nn.dense")
    dtypes = tuple("u32" if shape == (2,) else dtype for shape in shapes)
    workload = op.workload(*shapes, dtypes=dtypes, **attributes)
    if algorithm == "tf32":
        workload = op.workload(*shapes, tolerance=TF32_TOLERANCE, **attributes)
    made = Schedule(op.function(workload, algorithm), GPU)
    stage = next(s for s in stages(made.function) if s.driven("reduction"))
    tensor_cores(made, Knobs(pinned=knobs), stage)
    return lower(made.function, GPU)


def operands(func, m, n, k, layout="oi"):
    generator = np.random.default_rng(0)
    kind = func.buffers[0].dtype.numpy
    shapes = (m, k), (n, k) if layout == "oi" else (k, n)
    return [generator.normal(size=s).astype(kind) for s in shapes]


def outcome(func, arrays, m, n, **scalars):
    """The result, and the report of the run."""
    y = np.full((m, n), np.nan, func.buffers[-1].dtype.numpy)
    flat = [array.reshape(-1) for array in (*arrays, y)]
    report = run(func, *flat, n0=m, **scalars)
    return y.astype("f8"), report


def product(x, w, layout="oi"):
    wide = w.astype("f8")
    return x.astype("f8") @ (wide.T if layout == "oi" else wide)


def close(y, want, dtype="bf16"):
    step = {"bf16": 2.0**-8, "f16": 2.0**-11}[dtype]
    np.testing.assert_allclose(y, want, rtol=step, atol=step)


@pytest.mark.parametrize(
    ("dtype", "layout", "swizzle"),
    [("bf16", "oi", True), ("f16", "io", True), ("bf16", "io", False)],
)
def test_products_are_right_without_bank_conflicts(dtype, layout, swizzle):
    shape = (64, 64)
    knobs = {**SMALL, "swizzle": swizzle}
    func = dense((shape, shape), dtype, knobs, layout=layout)
    x, w = operands(func, 64, 64, 64, layout)
    y, report = outcome(func, (x, w), 64, 64)
    close(y, product(x, w, layout), dtype)
    assert report.barriers > 0
    if swizzle:
        assert set(report.bank_conflicts) == {"x_global_shared", "w_shared"}
        assert sum(report.bank_conflicts.values()) == 0


@pytest.mark.parametrize(("depth", "stages"), [(16, 4), (32, 1), (32, 3), (64, 2)])
def test_every_depth_and_number_of_stages(depth, stages):
    knobs = {**SMALL, "depth": depth, "stages": stages}
    func = dense(((64, 192), (64, 192)), knobs=knobs)
    x, w = operands(func, 64, 64, 192)
    y, report = outcome(func, (x, w), 64, 64)
    close(y, product(x, w))
    assert sum(report.bank_conflicts.values()) == 0


RAGGED = [(1, 64, 48), (65, 72, 16), (100, 56, 32), (65, 72, 24), (33, 64, 8)]


@pytest.mark.parametrize(("m", "n", "k"), RAGGED)
def test_ragged_sizes(m, n, k):
    func = dense(((64, k), (n, k)), knobs={**SMALL, "depth": 16})
    x, w = operands(func, m, n, k)
    y, _ = outcome(func, (x, w), m, n)
    close(y, product(x, w))


@pytest.mark.parametrize(
    ("depth", "warps", "n"), [(32, 1, 64), (64, 2, 64), (32, 2, 72), (32, 2, 70)]
)
def test_a_lane_stores_eight_neighbours_at_once(depth, warps, n):
    knobs = {
        "block_rows": 32,
        "block_columns": 64,
        "depth": depth,
        "warp_rows": 1,
        "warp_columns": warps,
        "wide": True,
    }
    shapes = (64, 128), (n, 128), (n,)
    func = dense(shapes, knobs=knobs, activation="relu")
    x, w = operands(func, 45, n, 128)
    b = np.linspace(-1, 1, n).astype(x.dtype)
    y, report = outcome(func, (x, w, b), 45, n)
    close(y, np.maximum(product(x, w) + b.astype("f8"), 0))
    assert len(report.bank_conflicts) == 2
    assert sum(report.bank_conflicts.values()) == 0
    assert ("*(bf16x8 *)(y + " in render(func, GPU)) == (n % 8 == 0)


def test_blocks_of_some_columns_go_through_all_rows_first():
    knobs = {"block_rows": 32, "block_columns": 32, "group": 4}
    func = dense(((64, 32), (256, 32)), knobs=knobs)
    (launch,) = launches(func)
    assert [str(launch.grid[0]), str(launch.grid[2])] == ["4", "2"]
    x, w = operands(func, 64, 256, 32)
    close(outcome(func, (x, w), 64, 256)[0], product(x, w))


def test_warps_share_a_tile():
    knobs = {"block_rows": 128, "block_columns": 64, "warp_rows": 4, "warp_columns": 1}
    func = dense(((128, 32), (64, 32)), knobs=knobs)
    x, w = operands(func, 128, 64, 32)
    close(outcome(func, (x, w), 128, 64)[0], product(x, w))


def gelu(x):
    from math import erf

    return 0.5 * x * (1 + np.vectorize(erf)(x / 2**0.5))


def test_bias_gelu_and_dropout_are_done_on_the_fragments():
    shapes = (64, 32), (64, 32), (64,), (2,)
    attributes = {"activation": "gelu", "dropout": True, "key": "threefry2x32"}
    func = dense(shapes, **attributes)
    assert len(launches(func)) == 1
    scopes = Counter(b.scope for b in allocations(func))
    assert scopes["shared"] == 2  # the operands: the sums never leave registers
    x, w = operands(func, 64, 64, 32)
    b = np.linspace(-1, 1, 64).astype(x.dtype)
    key = np.array([3, 5], "u4")
    kept, _ = outcome(func, (x, w, b, key), 64, 64, dropout=1.0)
    close(kept, gelu(product(x, w) + b.astype("f8")))
    y, _ = outcome(func, (x, w, b, key), 64, 64, dropout=0.5)
    assert 0.4 < (y == 0).mean() < 0.6
    np.testing.assert_allclose(y[y != 0], 2 * kept[y != 0], rtol=2**-7)


def test_the_steps_of_a_schedule(golden):
    op = find("nn.dense")
    workload = op.workload((256, 1024), (1024, 1024), (1024,), dtypes="bf16")
    golden(str(schedule(op, workload, GPU, "direct", Knobs()).trace))


def test_text(golden):
    op = find("nn.dense")
    workload = op.workload((256, 1024), (1024, 1024), (1024,), dtypes="bf16")
    func = schedule(op, workload, GPU, "direct", Knobs()).function
    golden(render(lower(func, GPU), GPU))


def test_sums_are_registers_and_instructions_have_their_names():
    func = dense(((64, 96), (32, 96)), knobs={"block_rows": 32, "block_columns": 32})
    assert len(launches(func)) == 1
    scopes = {b.name: b.scope for b in allocations(func)}
    assert scopes["products_shared"] == "register"
    source = render(func, GPU)
    assert "f32 products_register[8];" in source
    assert "= ldmatrix_x4_bf16(x_global_shared + " in source
    assert "= mma_m16n8k16_bf16(wa, wb0, *(const f32x4 *)" in source
    assert "copy_async_16(w_shared + " in source
    assert "cp.async.wait_group 1;" in source


def without(func, gone, number):
    """The function without the statement of that number that `gone` tells."""
    left = iter(range(1 << 20))

    def visit(node):
        if not isinstance(node, Seq):
            return node
        kept = (s for s in node.stmts if not gone(s) or next(left) != number)
        return seq(*kept)

    return transform(func, visit)


def is_wait(stmt):
    call = stmt.expr if isinstance(stmt, Evaluate) else None
    return isinstance(call, Call) and call.name == "wait_copies"


@pytest.mark.parametrize("layout", ["oi", "io"])
def test_gradients_take_their_operands_either_way(layout):
    op, m, n, k = find("nn.dense_grad"), 70, 64, 32
    shape = (n, k) if layout == "oi" else (k, n)
    workload = op.workload((64, n), (64, k), shape, dtypes="bf16", layout=layout)
    made = schedule(op, workload, GPU, "direct", Knobs())
    assert str(made.trace).count("tensorize") == 2
    func = lower(made.function, GPU)
    generator = np.random.default_rng(0)
    kind = func.buffers[0].dtype.numpy
    dy, x, w = (generator.normal(size=s).astype(kind) for s in ((m, n), (m, k), shape))
    dx, dw, db = (np.zeros(s, kind) for s in ((m, k), shape, (n,)))
    run(func, *(array.reshape(-1) for array in (dy, x, w, dx, dw, db)), n0=m)
    close(dx.astype("f8"), product(dy, w, "io" if layout == "oi" else "oi"))
    turned = dy.astype("f8").T @ x.astype("f8")
    close(dw.astype("f8"), turned if layout == "oi" else turned.T)


@pytest.mark.parametrize("layout", ["oi", "io"])
def test_f32_rounded_to_tf32_where_the_definition_says_so(layout):
    func = dense(((64, 64), (64, 64)), "f32", algorithm="tf32", layout=layout)
    x, w = operands(func, 64, 64, 64, layout)
    y, report = outcome(func, (x, w), 64, 64)
    want = product(tf32(x), tf32(w), layout)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)
    assert abs(y - product(x, w, layout)).max() > 1e-3
    assert sum(report.bank_conflicts.values()) == 0


def test_a_tolerance_chooses_tf32_on_targets_that_have_it():
    op = find("nn.dense")
    shapes = (64, 64), (64, 64)
    allowed = op.workload(*shapes, tolerance=TF32_TOLERANCE)
    assert preferred(op, allowed, GPU) == "tf32"
    assert preferred(op, allowed, host()) == "direct"
    for tolerance in ({}, {"tolerance": TF32_TOLERANCE / 2}):
        assert preferred(op, op.workload(*shapes, **tolerance), GPU) == "direct"


@pytest.mark.parametrize("gone", [lambda s: isinstance(s, Barrier), is_wait])
def test_a_missing_barrier_or_wait_is_found(gone):
    func = dense(((64, 128), (64, 128)))
    x, w = operands(func, 64, 64, 128)
    broken = without(func, gone, 0)
    assert broken != func
    with pytest.raises(InterpreterError, match=r"race|while a copy into it"):
        outcome(broken, (x, w), 64, 64)


def test_copies_of_16_bytes_are_asynchronous():
    func = dense(((64, 64), (64, 64)))
    copies = [n for n in walk(func) if isinstance(n, Store) and "async" in n.hints]
    assert {n.buffer.name for n in copies} == {"x_global_shared", "w_shared"}
    assert {n.value.dtype.lanes for n in copies} == {8}


def test_the_default_is_tensor_cores_where_they_are():
    op = find("nn.dense")
    workload = op.workload((256, 1024), (1024, 1024), dtypes="bf16")
    made = schedule(op, workload, GPU, "direct", Knobs())
    assert 'tensorize("' in str(made.trace)
    sides = [made.knobs[name] for name in ("block_rows", "block_columns", "depth")]
    assert sides == [128, 128, 32]
    assert made.trace.replay(op.function(workload)) == made.function


@pytest.mark.parametrize(
    ("shapes", "dtype"),
    [(((64, 64), (64, 64)), "f32"), (((1, 64), (64, 64)), "bf16")],
)
def test_what_is_none_goes_the_plain_way(shapes, dtype):
    with pytest.raises(ScheduleError):
        dense(shapes, dtype)
    op = find("nn.dense")
    workload = op.workload(*shapes, dtypes=dtype)
    made = schedule(op, workload, GPU, "direct", Knobs())
    assert "tensorize" not in str(made.trace)


def test_tiles_that_no_block_can_have_are_refused():
    with pytest.raises(ScheduleError, match="do not share 32 by 64"):
        dense(((64, 64), (64, 64)), knobs={**SMALL, "block_rows": 32, "warp_rows": 4})
    with pytest.raises(ScheduleError, match="more than a block"):
        dense(((64, 64), (256, 64)), knobs={"block_rows": 256, "block_columns": 256})
