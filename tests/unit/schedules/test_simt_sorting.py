"""Sorts and scatters on threads: nothing that many could do is left to one."""

import numpy as np
import pytest

from tensorlang.codegen.simt.lower import lower
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import For
from tensorlang.ir.visit import walk
from tensorlang.ops import find
from tensorlang.ops.kernels.building import default, preferred
from tensorlang.ops.math import device_sorts, row_scans
from tensorlang.ops.nn import embedding_sorts
from tensorlang.ops.random import block_sort
from tensorlang.targets import get

GPU = get("cuda:sm_80")
RNG = np.random.default_rng(9)


def made(name, *shapes):
    op = find(name)
    workload = op.workload(*shapes) if shapes else op.default
    return lower(default(op, workload, GPU, {})[0].function, GPU)


def threads(func):
    """How many threads the largest block has."""
    return max(
        int(loop.extent.value)
        for loop in walk(func)
        if isinstance(loop, For) and loop.thread.startswith("thread.")
    )


def test_a_row_is_sorted_by_all_threads_of_a_block():
    op = find("math.argsort")
    func = made("math.argsort", (1, 193))
    x = RNG.integers(-40, 40, (1, 193)).astype("f4")
    at = np.full((1, 193), -1)
    run(func, x.reshape(-1), at.reshape(-1), **op.sizes(op.workload((1, 193))))
    np.testing.assert_array_equal(at, x.argsort(1, kind="stable"))
    assert threads(func) == 256


@pytest.fixture
def small_blocks(set_constant):
    set_constant(device_sorts, "THREADS", 32)
    set_constant(device_sorts, "ITEMS", (4, 8))
    set_constant(row_scans, "SHORT", 1)


def launched(name, algorithm, *arrays, **attributes):
    """The result of an algorithm, lowered for threads, by the interpreter."""
    op, shape = find(name), arrays[-1].shape
    kinds = tuple(f"{a.dtype.kind}{8 * a.itemsize}" for a in arrays)
    workload = op.workload(*(a.shape for a in arrays), dtypes=kinds, **attributes)
    func = op.function(workload, algorithm)
    result = np.zeros(shape, "i8" if name == "math.argsort" else arrays[-1].dtype)
    flat = [a.reshape(-1) for a in (*arrays, result)]
    run(lower(func, GPU), *flat, **op.sizes(workload))
    return result


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("algorithm", ["blocks", "blocks_in_memory"])
@pytest.mark.parametrize("shape", [(2, 250), (1, 700)])
def test_a_row_of_a_block_and_one_of_many_are_sorted_alike(shape, algorithm):
    x = RNG.normal(size=shape).astype("f2")
    got = launched("math.sort", algorithm, x, descending=False)
    np.testing.assert_array_equal(got, np.sort(x, 1))


@pytest.mark.usefixtures("small_blocks")
def test_equal_ones_keep_their_order_from_block_to_block():
    x = RNG.integers(0, 9, (1, 700)).astype("u1")
    at = launched("math.argsort", "blocks", x, descending=True)
    np.testing.assert_array_equal(at, (9 - x).argsort(1, kind="stable"))
    dy, x = RNG.normal(size=(2, 1, 700)).astype("f2")
    dx = launched("math.sort_grad", "blocks", dy, x, descending=False)
    wanted = np.zeros_like(dx)
    np.put_along_axis(wanted, x.argsort(1, kind="stable"), dy, 1)
    np.testing.assert_array_equal(dx, wanted)


def test_a_sort_is_a_host_loop_over_bytes():
    """However many bytes a key has, the code is that of one pass."""
    for dtype in ("u8", "f32", "i64"):
        op = find("math.sort")
        workload = op.workload((4, 5000), dtypes=(dtype,))
        func = lower(default(op, workload, GPU, {})[0].function, GPU)
        blocks = [n for n in walk(func) if getattr(n, "thread", "") == "block.x"]
        assert len(blocks) == 8


@pytest.mark.parametrize("count", [1, 37])
def test_rows_are_added_up_in_order(count):
    op = find("nn.embedding_grad")
    workload = op.workload((count, 8), (count,), (5, 8))
    func = lower(default(op, workload, GPU, {})[0].function, GPU)
    dy, ids = RNG.normal(size=(count, 8)).astype("f4"), RNG.integers(0, 5, count)
    table, total = np.zeros((5, 8), "f4"), np.full((5, 8), np.nan, "f4")
    arrays = (dy.reshape(-1), ids, table.reshape(-1), total.reshape(-1))
    run(func, *arrays, **op.sizes(workload))
    expected = np.zeros_like(total)
    for row, line in zip(ids, dy, strict=True):
        expected[row] += line
    np.testing.assert_array_equal(total, expected)
    assert threads(func) > 1


@pytest.mark.parametrize("algorithm", ["sorted", "sorted_in_memory"])
@pytest.mark.parametrize(("count", "rows"), [(37, 5), (150, 300)])
def test_positions_sorted_by_rows_are_added_up_in_order(
    count, rows, algorithm, set_constant
):
    for name, value in (("THREADS", 32), ("ITEMS", 2), ("_FEW", 40)):
        set_constant(embedding_sorts, name, value)
    set_constant(row_scans, "SHORT", 1)
    op, skipped = find("nn.embedding_grad"), 3
    workload = op.workload((count, 8), (count,), (rows, 8), padding_idx=skipped)
    dy, ids = RNG.normal(size=(count, 8)).astype("f4"), RNG.integers(0, rows, count)
    table, total = np.zeros((rows, 8), "f4"), np.full((rows, 8), np.nan, "f4")
    arrays = (dy.reshape(-1), ids, table.reshape(-1), total.reshape(-1))
    func = lower(op.function(workload, algorithm), GPU)
    run(func, *arrays, **op.sizes(workload))
    expected = np.zeros_like(total)
    for row, line in zip(ids, dy, strict=True):
        expected[row] += line if row != skipped else 0
    np.testing.assert_array_equal(total, expected)


def test_a_permutation_is_sorted_in_blocks_to_the_same_order(set_constant):
    set_constant(block_sort, "BLOCK", 32)
    op = find("random.permutation")
    func = default(op, op.default, GPU, {})[0].function
    key, numbers = np.array([1, 2], "u4"), op.sizes(op.workload((70,)))
    wanted, got = np.zeros(70, "i4"), np.zeros(70, "i4")
    run(op.function(op.default), key, wanted, **numbers)
    run(lower(func, GPU), key, got, **numbers)
    np.testing.assert_array_equal(got, wanted)
    assert sorted(got) == list(range(70))


def test_what_is_made_for_devices_is_not_for_processors():
    op = find("random.permutation")
    assert preferred(op, op.default, GPU) == "blocks"
    assert preferred(op, op.default, get("llvm")) == "direct"
