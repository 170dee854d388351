"""Reductions across memory: blocks of a warp's results, and chunks of few results."""

import numpy as np
import pytest

from tensorlang.codegen.simt.lower import lower
from tensorlang.ir.interpreter import run
from tensorlang.ops import find
from tensorlang.ops.kernels.building import schedule
from tensorlang.schedules.simt import reductions
from tensorlang.scheduling import Knobs
from tensorlang.targets import get

GPU = get("cuda:sm_90a")
KNOBS = {"block_groups": 16, "block_steps": 2}


def lowered(name, dtype, **attributes):
    op = find(name)
    work = op.workload((64, 96), dtypes=dtype, axis=0, **attributes)
    return lower(schedule(op, work, GPU, "direct", Knobs(pinned=KNOBS)).function, GPU)


@pytest.mark.parametrize("rows", [64, 70, 700])
@pytest.mark.parametrize("columns", [64, 96, 100, 32])
def test_columns_are_added_in_any_case(rows, columns, set_constant):
    set_constant(reductions, "_BLOCKS", 2)
    x = np.random.default_rng(1).normal(size=(rows, columns)).astype("f4")
    y = np.full(columns, np.nan, "f4")
    report = run(lowered("math.sum", "f32"), x.reshape(-1), y, n0=rows, n1=columns)
    np.testing.assert_allclose(y, x.sum(0), rtol=1e-5, atol=1e-4)
    assert sum(report.bank_conflicts.values()) == 0


def test_states_of_several_values_are_in_large_blocks_too(set_constant):
    set_constant(reductions, "_BLOCKS", 2)
    x = np.random.default_rng(1).normal(size=(40, 64)).astype("f4")
    y = np.full(64, -1, "i8")
    func = lowered("math.argmax", "f32")
    run(func, x.reshape(-1), y, n0=40, n1=64)
    np.testing.assert_array_equal(y, x.argmax(0))
