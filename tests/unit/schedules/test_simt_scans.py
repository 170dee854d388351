"""Running sums on threads: chunks at once, the same sums as one after the other."""

import numpy as np
import pytest

from tensorlang.codegen.simt.lower import lower
from tensorlang.ir.contents import allocations
from tensorlang.ir.interpreter import run
from tensorlang.ops import find
from tensorlang.ops.kernels.building import default, preferred
from tensorlang.ops.math import chunked_scans, row_scans
from tensorlang.targets import get

GPU = get("cuda:sm_80")
RNG = np.random.default_rng(2)


@pytest.mark.parametrize("shape", [(3, 150), (1, 32), (2, 1)])
@pytest.mark.parametrize("name", ["math.cumsum", "math.cumsum_grad"])
def test_chunks_of_rows(name, shape, set_constant):
    set_constant(chunked_scans, "CHUNK", 4)
    set_constant(chunked_scans, "CHUNKS", 8)
    op = find(name)
    func = lower(default(op, op.default, GPU, {})[0].function, GPU)
    x = RNG.normal(size=shape).astype("f4")
    y = np.full(shape, np.nan, "f4")
    arrays = [x.reshape(-1)] * (len(func.params) - 1)  # dy, and x, which nobody reads
    run(func, *arrays, y.reshape(-1), n0=shape[0], n1=shape[1])
    back = slice(None, None, -1 if name.endswith("grad") else 1)
    wanted = np.cumsum(x[:, back].astype("f8"), 1)[:, back]
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-6)


def test_only_long_rows_on_devices_are_cut():
    op = find("math.cumsum")
    assert preferred(op, op.default, GPU) == "chunks"
    assert preferred(op, op.workload((8, 10)), GPU) == "direct"
    assert preferred(op, op.default, get("llvm")) == "direct"


def sums(algorithm, shape, x):
    """The running sums of an algorithm, lowered for threads, by the interpreter."""
    op = find("math.cumsum")
    func = op.function(
        op.workload(shape, dtypes=(f"{x.dtype.kind}{8 * x.itemsize}",)), algorithm
    )
    y = np.zeros(shape, np.result_type(x.dtype, "i8") if x.dtype.kind == "i" else "f4")
    sizes = {"n0": shape[0], "n1": shape[1]}
    run(lower(func, GPU), x.reshape(-1), y.reshape(-1), **sizes)
    return y


@pytest.mark.parametrize("length", [256, 400, 517])
def test_lanes_that_shuffle_give_the_bits_of_those_that_go_through_memory(
    length, set_constant
):
    set_constant(chunked_scans, "CHUNK", 4)
    set_constant(chunked_scans, "CHUNKS", 32)
    set_constant(row_scans, "SHORT", 2)
    x = (RNG.normal(size=(2, length)) * 1e4).astype("f4")
    shuffled = sums("chunks", x.shape, x)
    np.testing.assert_array_equal(shuffled, sums("chunks_in_memory", x.shape, x))
    np.testing.assert_allclose(shuffled, np.cumsum(x.astype("f8"), 1), rtol=1e-6)


def test_parts_of_a_long_row_are_exact_for_integers(set_constant):
    set_constant(chunked_scans, "CHUNKS", 32)
    set_constant(row_scans, "SHORT", 1)
    x = RNG.integers(-(2**30), 2**30, (2, 1300)).astype("i4")
    np.testing.assert_array_equal(sums("chunks", x.shape, x), np.cumsum(x, 1))


def test_rows_that_lie_apart_are_a_threads_each_whose_sum_is_in_a_register():
    op = find("math.cumsum")
    workload = op.workload((2, 30, 7), axis=1)
    func = lower(default(op, workload, GPU, {})[0].function, GPU)
    scopes = {b.name: b.scope for b in allocations(func.body)}
    assert scopes == {"state": "register"}
    x = RNG.normal(size=(2, 30, 7)).astype("f4")
    y = np.full_like(x, np.nan)
    run(func, x.reshape(-1), y.reshape(-1), n0=2, n1=30, n2=7)
    wanted = np.cumsum(x.astype("f8"), 1).astype("f4")
    np.testing.assert_array_equal(y, wanted)
