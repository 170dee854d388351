"""Rows of unknown length on threads: vectors of long ones, elements of short ones."""

from dataclasses import replace

import numpy as np
import pytest

from tensorlang.codegen.simt.lower import lower
from tensorlang.ir.contents import loops
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import If, Ramp, Store
from tensorlang.ir.visit import walk
from tensorlang.ops import find
from tensorlang.ops.kernels.building import schedule
from tensorlang.scheduling import Knobs
from tensorlang.targets import get

GPU = get("cuda:sm_90a")
OPENCL = replace(GPU, kind="opencl", features=())


def made(target, **pinned):
    op = find("math.sum_grad")
    s = schedule(op, op.default, target, "direct", Knobs(pinned=pinned))
    return lower(s.function, target)


@pytest.mark.parametrize("target", [GPU, OPENCL], ids=["cuda", "opencl"])
@pytest.mark.parametrize("length", [1, 10, 127, 128, 130, 300])
def test_rows_of_any_length(target, length):
    func = made(target, long_row_threads=32)
    dy = np.arange(3, dtype="f4")
    y = np.full(3 * length, np.nan, "f4")
    run(func, dy, np.zeros_like(y), y, n0=3, n1=length)
    np.testing.assert_array_equal(y, dy.repeat(length))


def test_long_rows_divide_by_nothing_and_store_16_bytes():
    func = made(GPU)
    long = next(
        node.then
        for node in walk(func)
        if isinstance(node, If) and any(loop.thread for loop in loops(node.then))
    )
    assert {x.thread for x in loops(long)} >= {"block.x", "block.y", "thread.x"}
    stores = [node for node in walk(long) if isinstance(node, Store)]
    places = [
        node for store in stores for index in store.indices for node in walk(index)
    ]
    assert "floordiv" not in {getattr(node, "op", "") for node in places}
    (wide,) = (store for store in stores if "aligned" in store.hints)
    assert isinstance(wide.indices[0], Ramp)
