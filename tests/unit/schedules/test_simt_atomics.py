"""One result of many integers: parts in a launch of their own, or atomic updates."""

import numpy as np
import pytest

from tensorlang import targets
from tensorlang.ir import run
from tensorlang.ir.nodes import AtomicUpdate
from tensorlang.ir.text.parser import parse
from tensorlang.ir.visit import walk
from tensorlang.schedules.generic import stage_named
from tensorlang.schedules.simt.reductions import one_result
from tensorlang.scheduling import Knobs, Schedule

GPU = targets.to_compile("cuda:sm_90a")
ATOMICS = {"across_blocks": "atomics"}


def total(dtype, op="sum"):
    return parse(f"""
def total(x: {dtype}[40000], y: Out[{dtype}[1]]):
    for i in range(1):
        for k in range(40000):
            with block("y", vi=spatial(1, i), vk=reduction(40000, k)):
                reduce({op}, y[vi], x[vk])
""")


def scheduled(func, pinned=None):
    s, knobs = Schedule(func, GPU), Knobs(pinned=pinned)
    one_result(s, knobs, stage_named(s, "y"))
    return s.function, knobs


def is_atomic(func):
    return any(isinstance(node, AtomicUpdate) for node in walk(func))


@pytest.mark.parametrize("op", ["sum", "min", "max"])
def test_blocks_add_to_one_result(op):
    func, _ = scheduled(total("i32", op), ATOMICS)
    assert is_atomic(func)
    x = np.random.default_rng(0).integers(-9999, 9999, 40000).astype("i4")
    y = np.zeros(1, "i4")
    run(func, x, y)
    assert y[0] == getattr(np, op)(x)


def test_a_launch_for_the_parts_is_what_is_done_by_default():
    func, knobs = scheduled(total("i32"))
    assert knobs.values["across_blocks"] == "launches"
    assert not is_atomic(func)


def test_floats_have_one_order_and_no_such_choice():
    func, knobs = scheduled(total("f32"))
    assert "across_blocks" not in knobs.values
    assert not is_atomic(func)
