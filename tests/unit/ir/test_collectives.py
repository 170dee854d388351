"""Collectives: what the lanes of a warp get, who has to be there, where they stand."""

from dataclasses import replace

import numpy as np
import pytest

from tensorlang.codegen.c_family.render import render
from tensorlang.codegen.lower import lower as lower_for_a_cpu
from tensorlang.codegen.simt.lower import lower
from tensorlang.errors import CodegenError, DTypeError, InterpreterError, IRError
from tensorlang.ir.collectives import COLLECTIVES, shuffle_xor
from tensorlang.ir.dtypes import boolean, f32, i32
from tensorlang.ir.interpreter import run
from tensorlang.ir.nodes import Var
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.ir.verification.verifier import verify
from tensorlang.targets import get, host

GPU = get("cuda:sm_80")


def each_lane(value, dtype="f32", threads=64):
    """A block of threads, of which each stores `value` of its number `t`."""
    return parse(
        f"""
def f(y: Out[{dtype}[{threads}]]):
    for t in bound({threads}, "thread.x"):
        x: {dtype} = cast({dtype}, t)
        y[t] = {value}
"""
    )


def stored(func):
    y = np.zeros(func.params[0].buffer.shape[0].value, func.buffers[0].dtype.numpy)
    run(func, y)
    return y


LANE = np.arange(64)


@pytest.mark.parametrize(
    ("call", "want"),
    [
        ("shuffle_xor(x, 5)", LANE ^ 5),
        ("shuffle_xor(x, 16)", LANE ^ 16),
        ("shuffle_down(x, 8)", np.where(LANE % 32 < 24, LANE + 8, LANE)),
        ("shuffle_index(x, t // 4 % 32)", LANE // 32 * 32 + LANE // 4 % 32),
        ("x + shuffle_xor(shuffle_xor(x, 1), 2)", LANE + (LANE ^ 3)),
    ],
)
@pytest.mark.parametrize("dtype", ["f32", "i32", "u32", "f64", "i64", "bf16", "u8"])
def test_what_each_lane_gets(call, want, dtype):
    func = each_lane(call, dtype)
    verify(func)
    assert show(parse(show(func))) == show(func)
    np.testing.assert_array_equal(stored(func), want.astype(stored(func).dtype))
    np.testing.assert_array_equal(stored(lower(func, GPU)), stored(func))


def test_a_butterfly_sums_a_warp_in_every_lane():
    steps = "".join(
        f"        s{n}: f32 = s{n + 1} + shuffle_xor(s{n + 1}, {1 << n})\n"
        for n in reversed(range(5))
    )
    func = parse(
        "def f(x: f32[2, 64], y: Out[f32[2, 64]]):\n"
        '  for b in bound(2, "block.x"):\n'
        '    for t in bound(64, "thread.x"):\n'
        f"        s5: f32 = x[b, t]\n{steps}        y[b, t] = s0\n"
    )
    verify(func)
    x = np.random.default_rng(0).integers(-9, 9, (2, 64)).astype("f4")
    y = np.zeros_like(x)
    run(func, x, y)
    want = np.repeat(x.reshape(2, 2, 32).sum(-1), 32, axis=-1)
    np.testing.assert_array_equal(y, want)


def test_lanes_are_counted_along_x_first():
    func = parse(
        """
def f(y: Out[i64[4, 16]]):
    for j in bound(4, "thread.y"):
        for i in bound(16, "thread.x"):
            y[j, i] = shuffle_xor(j * 16 + i, 17)
"""
    )
    y = np.zeros((4, 16), "i8")
    run(func, y)
    np.testing.assert_array_equal(y.reshape(-1), LANE ^ 17)


@pytest.mark.parametrize(
    "func",
    [
        each_lane("shuffle_xor(x, 1)", threads=48),
        parse(
            """
def f(y: Out[f32[64]]):
    for t in bound(64, "thread.x"):
        if t < 40:
            y[t] = shuffle_xor(1.0, 1)
"""
        ),
    ],
    ids=["half a warp", "a branch of some"],
)
def test_a_missing_lane_is_a_fault(func):
    with pytest.raises(InterpreterError, match=r"divergent collective: \d+ of 32"):
        run(func, np.zeros(func.params[0].buffer.shape[0].value, "f4"))


def test_whole_warps_may_be_missing():
    func = parse(
        """
def f(y: Out[i64[64]]):
    for t in bound(64, "thread.x"):
        if t >= 32:
            y[t] = shuffle_down(t, 1)
"""
    )
    y = np.zeros(64, "i8")
    run(func, y)
    np.testing.assert_array_equal(y[32:], [*range(33, 64), 63])


def test_outside_of_threads_there_is_no_warp():
    func = parse("def f(y: Out[f32[1]]):\n    y[0] = shuffle_xor(1.0, 1)\n")
    with pytest.raises(InterpreterError, match=r"outside of a loop over thread\.x"):
        run(func, np.zeros(1, "f4"))


@pytest.mark.parametrize(
    "value",
    [
        "select(t < 3, shuffle_xor(x, 1), x)",
        "load(y[cast(i64, shuffle_xor(x, 1))], mask=t < 3)",
    ],
)
def test_not_where_only_some_lanes_come(value):
    with pytest.raises(IRError, match=r"shuffle_xor is for all lanes of a warp"):
        verify(each_lane(value))


def test_not_below_the_mask_of_a_store():
    func = parse(
        """
def f(y: Out[f32[32]]):
    for t in bound(32, "thread.x"):
        store(y[t], shuffle_xor(1.0, 1), mask=t < 3)
"""
    )
    with pytest.raises(IRError, match="below the mask of a store"):
        verify(func)


def test_types_are_checked():
    with pytest.raises(DTypeError, match="moves one number of a lane"):
        shuffle_xor(Var("p", boolean), 1)
    with pytest.raises(DTypeError, match="takes its lane as i64"):
        shuffle_xor(Var("p", f32), Var("q", i32))


def test_targets_without_them_say_so():
    func = each_lane("shuffle_xor(x, 1)")
    alone = parse("def f(y: Out[f32[1]]):\n    y[0] = shuffle_xor(1.0, 1)\n")
    with pytest.raises(
        CodegenError, match="lacks 'shuffle'; schedule it as plain loops"
    ):
        lower_for_a_cpu(alone, host())
    with pytest.raises(
        CodegenError, match="lacks 'shuffle'; schedule it as plain loops"
    ):
        lower(func, replace(GPU, kind="opencl", features=()))
    assert "__shfl_xor_sync(0xffffffffu, x, 1)" in render(lower(func, GPU), GPU)


def test_every_collective_is_documented():
    for name, entry in COLLECTIVES.items():
        assert entry.name == name
        assert entry.doc
