"""What each statement does, in loops of every kind."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.errors import InterpreterError
from tensorlang.ir.interpreter import ALL_CHECKS, run
from tensorlang.ir.text.parser import parse

KINDS = ["range(8)", "unrolled(8)", "parallel(8)", "vectorized(8)"]
KINDS += ['bound(8, "thread.x")', 'bound(8, "block.x")']


def ran(body, size=8, dtype="i64"):
    """The output y of a program over x = 0, 1, ... and y."""
    func = parse(f"def f(x: {dtype}[8], y: Out[{dtype}[{size}]]):\n" + body)
    kind = np.dtype({"i64": "i8", "f32": "f4", "i32": "i4"}[dtype])
    y = np.zeros(size, kind)
    run(func, np.arange(8).astype(kind), y)
    return y.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_of_every_kind(kind):
    assert ran(f"""
    for i in {kind}:
        y[i] = x[i] * 2
""") == [2 * i for i in range(8)]


@pytest.mark.parametrize("outer", KINDS)
@pytest.mark.parametrize("inner", ["range", "parallel", "unrolled"])
def test_nested_loops_of_unequal_extents(outer, inner):
    expected = [10 * i + j for i in range(8) for j in range(i)]
    body = f"""
    for i in {outer}:
        for j in {inner}(i):
            y[i * (i - 1) // 2 + j] = 10 * i + j
"""
    assert ran(body, size=28) == expected


def test_an_extent_at_or_below_zero_runs_nothing():
    assert (
        ran("""
    for i in range(8):
        y[i] = 0
    for i in range(x[0] - 3):
        y[i] = 1
    for i in parallel(x[0]):
        y[i] = 1
""")
        == [0] * 8
    )


def test_an_extent_is_evaluated_once():
    func = parse("""
def f(n: InOut[i64[1]], y: Out[i64[8]]):
    for i in range(n[0]):
        n[0] = 8
        y[i] = i
    for j in range(5):
        y[j + 3] = 9
""")
    y = np.zeros(8, "i8")
    run(func, np.array([3]), y)
    assert y.tolist() == [0, 1, 2, 9, 9, 9, 9, 9]


@pytest.mark.parametrize("kind", KINDS)
def test_if_takes_each_lane_its_way(kind):
    assert ran(f"""
    for i in {kind}:
        if i % 3 == 0:
            y[i] = 100
        else:
            if i > 4:
                y[i] = x[i]
            else:
                y[i] = -x[i]
""") == [100, -1, -2, 100, -4, 5, 100, 7]


@pytest.mark.parametrize("kind", KINDS)
def test_while_runs_each_lane_to_its_own_end(kind):
    def collatz(n):
        steps = 0
        while n > 1:
            n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
        return steps

    assert ran(f"""
    for i in {kind}:
        n = alloc(i64[1], scope="private")
        n[0] = x[i]
        y[i] = 0
        while n[0] > 1:
            if n[0] % 2 == 0:
                n[0] = n[0] // 2
            else:
                n[0] = 3 * n[0] + 1
            y[i] = y[i] + 1
""") == [collatz(i) for i in range(8)]


@pytest.mark.parametrize("kind", KINDS)
def test_let_holds_a_value_and_not_an_expression(kind):
    assert ran(f"""
    for i in {kind}:
        t = alloc(i64[1], scope="register")
        t[0] = x[i]
        old: i64 = t[0]
        t[0] = 50
        y[i] = old + t[0]
""") == [i + 50 for i in range(8)]


@pytest.mark.parametrize("kind", KINDS)
def test_each_iteration_has_a_fresh_temporary(kind):
    body = f"""
    for i in {kind}:
        t = alloc(i64[2], scope="private")
        if i == 0:
            t[0] = 1
        y[i] = t[0]
"""
    with pytest.raises(InterpreterError, match=r"t\[0\] is read.*i=1"):
        ran(body)


def test_a_temporary_holds_poison_until_it_is_written():
    func = parse("""
def f(y: Out[u32[1]]):
    t = alloc(u32[1])
    y[0] = t[0]
""")
    y = np.zeros(1, "u4")
    run(func, y, checks=ALL_CHECKS - {"unwritten"})
    assert y[0] == 0xA5A5A5A5


def test_a_store_leaves_masked_lanes_alone():
    assert ran("""
    for i in parallel(2):
        at: i64x4 = ramp(4 * i, 1, 4)
        store(y[at], splat(7, 4))
        store(y[at], load(x[at]), mask=at < splat(6, 4))
""") == [0, 1, 2, 3, 4, 5, 7, 7]


def test_a_masked_lane_may_be_out_of_bounds():
    assert ran("""
    for i in range(3):
        at: i64x3 = ramp(3 * i, 1, 3)
        v: i64x3 = load(x[at], mask=at < splat(8, 3))
        store(y[at], v + splat(1, 3), mask=at < splat(8, 3))
""") == list(range(1, 9))


def test_a_scalar_mask_guards_a_scalar_access():
    assert ran("""
    for i in parallel(9):
        store(y[i], load(x[i + 1], mask=i < 7), mask=i < 8)
""") == [1, 2, 3, 4, 5, 6, 7, 0]


@pytest.mark.parametrize(
    ("op", "start", "expected"),
    [
        ("add", 5, 5 + 28),
        ("mul", 2, 0),
        ("min", 3, 0),
        ("max", 3, 7),
        ("and", 15, 0),
        ("or", 8, 15),
        ("xor", 0, 0),
    ],
)
@pytest.mark.parametrize("kind", ["range", "parallel"])
def test_atomic_updates(op, start, expected, kind):
    assert ran(
        f"""
    y[0] = {start}
    for i in {kind}(8):
        atomic("{op}", y[0], x[i])
""",
        size=1,
    ) == [expected]


def test_an_atomic_update_of_floats_goes_in_the_lanes_order():
    func = parse("""
def f(x: f32[100], y: InOut[f32[1]]):
    for i in parallel(100):
        atomic("add", y[0], x[i])
""")
    x, y = np.random.default_rng(2).random(100, "f4"), np.zeros(1, "f4")
    run(func, x, y)
    total = np.float32(0)
    for value in x:
        total = total + value
    assert y[0] == total


def test_an_inout_element_may_be_updated_again_and_again():
    func = parse("""
def f(x: i64[3, 4], y: InOut[i64[3]]):
    for k in range(4):
        for i in parallel(3):
            y[i] = x[i, k] + y[i]
""")
    x, y = np.arange(12).reshape(3, 4), np.full(3, 100)
    run(func, x, y)
    assert (y == 100 + x.sum(axis=1)).all()


def test_a_zero_dimensional_buffer_and_an_empty_one():
    func = parse("""
def f(x: i64[n], y: Out[i64[n]], z: Out[i64[1]], *, n: i64):
    t = alloc(i64[1, 0])
    for i in parallel(n):
        y[i] = x[i]
    z[0] = n
""")
    z = np.zeros(1, "i8")
    run(func, np.zeros(0, "i8"), np.zeros(0, "i8"), z)
    assert z[0] == 0


def test_loop_variables_of_narrow_types():
    func = parse("""
def f(y: Out[i32[8]]):
    for i in parallel(i32(8)):
        y[cast(i64, i)] = i * i
""")
    y = np.zeros(8, "i4")
    run(func, y)
    assert y.tolist() == [i * i for i in range(8)]


def test_bf16_memory():
    import ml_dtypes

    func = parse("""
def f(x: bf16[4], y: Out[bf16[4]]):
    for i in vectorized(4):
        y[i] = x[i] * x[i] + bf16(1.0)
""")
    x = np.array([1, 2, 3, 1.0078125], ml_dtypes.bfloat16)
    y = np.zeros_like(x)
    run(func, x, y)
    assert (y == (x * x + ml_dtypes.bfloat16(1))).all()
