"""The schedule of rows: text of it, and the same meaning in the interpreter."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tensorlang import targets
from tensorlang.ir import run, show
from tensorlang.ir.contents import loops, names
from tensorlang.ops import nn
from tensorlang.schedules.rows import rows
from tensorlang.scheduling import Knobs, Schedule

TARGET = targets.Target(threads=2, vector_bits=512, vector_registers=32)


def scheduled(op, *shapes, knobs=None, **attributes):
    s = Schedule(op.function(op.workload(*shapes, **attributes)), TARGET)
    rows(s, Knobs(pinned=knobs or {}))
    return s.function


@pytest.mark.parametrize(
    ("name", "shape", "axis"), [("softmax_rows", (4, 100), 1), ("blocks", (4, 9, 8), 1)]
)
def test_softmax_text(golden, name, shape, axis):
    del name
    golden(show(scheduled(nn.softmax, shape, axis=axis)) + "\n")


def test_temporaries_are_moved_only_into_loops_that_use_them():
    x, weight = (70, 64), (64,)
    op = nn.layer_norm_grad.grad
    s = Schedule(op.function(op.workload(x, weight, weight, x, x, weight)), TARGET)
    rows(s, Knobs())
    asked = re.findall(r's.store_at\("(\w+)", "(\w+)"\)', s.annotated_trace())
    held = {loop.var.name: names(loop) for loop in loops(s.function)}
    assert asked
    assert [name for name, loop in asked if name not in held[loop]] == []


def test_layer_norm_grad_text(golden):
    shapes = ((70, 64), (70, 64), (64,))
    golden(show(scheduled(nn.layer_norm_grad, *shapes)) + "\n")


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("shape", [(3, 21), (2, 5), (2, 7, 18), (1, 3, 2)])
def test_it_runs_without_a_fault(shape, lanes):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for op in (nn.softmax, nn.log_softmax):
        func = scheduled(
            op, shape, axis=1, knobs={"lanes": lanes, "partials": lanes, "block": 16}
        )
        out = np.zeros(shape, np.float32)
        run(func, x, out)
        np.testing.assert_allclose(out, op(x, 1), rtol=1e-5, atol=1e-6)
