"""Tiled products for threads: right, without races, and without bank conflicts."""

import numpy as np
import pytest

from tensorlang.codegen.simt.lower import lower
from tensorlang.errors import InterpreterError
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import Alloc, Barrier, Load, Ramp, Seq, seq
from tensorlang.ir.visit import allocations, transform, walk
from tensorlang.ops import find
from tensorlang.ops.building import schedule
from tensorlang.scheduling import Knobs
from tensorlang.targets import get

GPU = get("cuda:sm_80")


def lowered(rows=2, columns=2, depth=8, k=32):
    op = find("nn.dense")
    workload = op.workload((64, k), (32, k))
    knobs = Knobs(pinned={"rows": rows, "columns": columns, "depth": depth})
    return lower(schedule(op, workload, GPU, "direct", knobs).function, GPU)


def outcome(func, m=37, k=32):
    generator = np.random.default_rng(0)
    x, w = (generator.normal(size=s).astype("f4") for s in ((m, k), (32, k)))
    y = np.full((m, 32), np.nan, "f4")
    report = run(func, x.reshape(-1), w.reshape(-1), y.reshape(-1), m=m)
    np.testing.assert_allclose(y, x @ w.T, rtol=1e-5, atol=1e-5)
    return report


@pytest.mark.parametrize("depth", [8, 16, 32])
def test_tiles_and_a_ragged_rest_are_right(depth):
    report = outcome(lowered(depth=depth))
    assert report.barriers > 0
    assert set(report.bank_conflicts) == {"x_shared", "w_shared"}
    assert sum(report.bank_conflicts.values()) == 0


def test_sums_are_registers_and_operands_shared():
    scopes = {b.name: b.scope for b in allocations(lowered())}
    assert scopes["y_shared"] == "register"
    assert scopes["x_shared"] == scopes["w_shared"] == "shared"


def test_the_usual_tile_has_8_by_8_sums_and_wide_loads():
    op = find("nn.dense")
    made = schedule(op, op.default, GPU, "direct", Knobs())
    assert (made.knobs["rows"], made.knobs["columns"]) == (8, 8)
    func = lower(made.function, GPU)
    wide = [n for n in walk(func) if isinstance(n, Load) and n.dtype.lanes == 4]
    assert all(isinstance(load.indices[0], Ramp) for load in wide)
    assert {load.buffer.name for load in wide} == {"x", "w"}


def test_each_missing_barrier_is_found():
    func = lowered()
    count = sum(isinstance(node, Barrier) for node in walk(func))
    assert count == 2
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
    from tensorlang.ir.parser import parse

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
