"""A checked build tells of what is out of bounds, and touches nothing there."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType

import ml_dtypes
import numpy as np
import pytest

from tensorlang import build
from tensorlang.errors import ArgumentError, KernelError, TargetError
from tensorlang.ir import (
    compute,
    function,
    minimum,
    parse,
    placeholder,
    reduce_axis,
    select,
)
from tensorlang.ir import sum as fold
from tensorlang.ir.nodes import Var
from tensorlang.ops import math, nn, operator
from tensorlang.scheduling import Schedule

N = Var("n")


def gathered():
    x, at = placeholder((5,), "f32", "x"), placeholder((N,), "i64", "at")
    y = compute(at.shape, lambda i: x[at[i]] * 2.0, "y")
    return function("gathered", [x, at], [y])


LINE = gathered.__code__.co_firstlineno + 2
X = np.arange(5, dtype=np.float32)


@pytest.mark.parametrize("bad", [5, -1, 1 << 40, -(1 << 63)])
def test_a_load(bad):
    s = Schedule(gathered())
    outer, inner = s.split("i", [None, 8])
    s.parallel(outer)
    s.vectorize(inner)
    kernel = build(s, checked=True, store=False)
    at = np.arange(100) % 5
    np.testing.assert_array_equal(kernel(X, at), X[at] * 2)
    at[37] = bad
    expected = (
        rf"^gathered: x\[at\[vi\]\] has index {bad} in dimension 0, whose size is 5, "
        rf".*test_checked\.py:{LINE}$"
    )
    with pytest.raises(KernelError, match=expected):
        kernel(X, at)
    with pytest.raises(ArgumentError, match="takes 3 arguments, got 5"):
        kernel.launch(X, at, X, X, X)


SCATTERED = """
def scattered(at: i64[n], y: InOut[f32[4, m]], *, n: i64, m: i64):
    for i in range(n):
        with block("y", vi=opaque(n, i)):
            {write}
"""


@pytest.mark.parametrize(
    "write",
    [
        "y[2, at[vi]] = 1.0",
        'atomic("add", y[2, at[vi]], 1.0)',
    ],
)
def test_a_store(write):
    kernel = build(parse(SCATTERED.format(write=write)), checked=True, store=False)
    memory = np.zeros((6, 3), np.float32)
    y = memory[1:5]
    kernel(np.array([0, 2]), y)
    np.testing.assert_array_equal(memory[3], [1, 0, 1])
    for bad in (3, -1, -7, 10**9):
        with pytest.raises(KernelError, match=rf"index {bad} in dimension 1.* 3, line"):
            kernel(np.array([1, bad]), y)
    assert memory.sum() == memory[3].sum()


LOOPS = """
def loops(at: i64[n], x: f32[3], y: Out[f32[n]], *, n: i64):
    for i in range(n):
        last = alloc(i64[1])
        last[0] = at[i]
        y[i] = 0.0
        while x[last[0]] < 0.0:
            last[0] = last[0] + 1
        if (0 <= at[i]) & (at[i] < 3):
            for k in vectorized(2):
                y[i] = y[i] + x[at[i] // 2 + k]
"""


def test_loops_and_conditions():
    kernel = build(parse(LOOPS), checked=True, store=False)
    x = np.float32([1, -1, -1])
    np.testing.assert_array_equal(kernel(np.array([0, 0]), x), [0, 0])
    with pytest.raises(KernelError, match=r"x\[last\[0\]\] has index 3 in dimension 0"):
        kernel(np.array([0, 1]), x)
    with pytest.raises(KernelError, match=r"x\[last\[0\]\] has index 7 in dimension 0"):
        kernel(np.array([7, 0]), x)


def test_a_vector_of_a_row_that_data_chooses():
    func = parse("""
def rows(at: i64[n], x: f32[m, 4], y: Out[f32[n, 2]], *, n: i64, m: i64):
    for i in range(n):
        with block("y", vi=spatial(n, i)):
            y[vi, ramp(0, 1, 2)] = x[at[vi], ramp(1, 1, 2)]
""")
    kernel = build(func, checked=True, store=False)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    at = np.array([2, 0])
    np.testing.assert_array_equal(kernel(at, x), x[at, 1:3])
    with pytest.raises(KernelError, match="index 3 in dimension 0, whose size is 3"):
        kernel(np.array([0, 3]), x)
    with pytest.raises(KernelError, match="index 0 in dimension 0, whose size is 0"):
        kernel(np.array([0]), x[:0])


def test_an_empty_buffer_has_no_element():
    s = parse("def first(x: f32[n], y: Out[f32[1]], *, n: i64):\n    y[0] = x[0]\n")
    kernel = build(s, checked=True, store=False)
    assert kernel(X[3:]) == 3
    with pytest.raises(KernelError, match="index 0 in dimension 0, whose size is 0"):
        kernel(X[:0])


def test_a_loop_ends_where_it_would_go_on_outside():
    found = parse("""
def found(x: f32[n], y: Out[f32[1]], *, n: i64):
    c = alloc(i64[1])
    c[0] = 0
    while x[c[0]] > 0.0:
        c[0] = c[0] + 1
    y[0] = cast(f32, c[0])
""")
    kernel = build(found, checked=True, store=False)
    assert kernel(np.float32([1, 1, 0])).tolist() == [2]
    with pytest.raises(KernelError, match=r"x\[c\[0\]\] has index 3 in dimension 0"):
        kernel(np.ones(3, np.float32))


def test_what_is_told_of_a_store_is_as_the_definition_has_it():
    func = parse("""
def put(k: i64[n], y: InOut[f32[n]], *, n: i64):
    for i in range(n):
        with block("y", vi=spatial(n, i)):
            y[k[vi] + 1] = 1.0
""")
    kernel = build(func, checked=True, store=False)
    with pytest.raises(KernelError, match=r"y\[k\[vi\] \+ 1\] has index 3"):
        kernel(np.array([0, 1, 2]), np.zeros(3, np.float32))


def test_a_mask_leaves_lanes_out():
    func = parse("""
def masked(x: f32[n], y: Out[f32[8]], *, n: i64):
    few: boolx8 = ramp(0, 1, 8) < splat(n, 8)
    y[ramp(0, 1, 8)] = load(x[ramp(0, 1, 8)], mask=few)
""")
    kernel = build(func, checked=True, store=False)
    np.testing.assert_array_equal(kernel(X), [0, 1, 2, 3, 4, 0, 0, 0])


def test_bounds_that_are_proven_cost_nothing():
    x = placeholder((N,), "f32", "x")
    func = function("twice", [x], [compute(x.shape, lambda i: x[i] * 2.0, "y")])
    assert "outside[" not in str(build(func, checked=True, store=False).lowered)


def test_a_gpu_is_refused():
    with pytest.raises(TargetError, match="a checked build is for CPUs"):
        build(gathered(), "cuda:sm_90a", checked=True)


MINE = """
import numpy as np
from tensorlang.ir import compute
from tensorlang.ops import operator

@operator("mine.take")
def take(x, at):
    return compute(at.shape,
                   lambda i: x[at[i]])

take(np.ones(4, np.float32), np.array([0, 1, 10**12]))
"""


def test_an_operator_of_ones_own(tmp_path):
    script = tmp_path / "mine.py"
    script.write_text(MINE)
    ran = subprocess.run(
        [sys.executable, script],
        check=False,
        env={**os.environ, "TENSORLANG_CHECKED": "1"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1, ran.stderr
    assert "x[at[vi]] has index 1000000000000 in dimension 0" in ran.stderr
    assert ran.stderr.rstrip().endswith(f"whose size is 4, {script}:9")


def ragged(x, counts):
    def total(i):
        k = reduce_axis(counts[i])
        return fold(x[i, k], k)

    return compute((x.shape[0],), total)


def guarded(x, counts):
    def total(i):
        k = reduce_axis(counts[i])
        return fold(select(k < 3, x[i, minimum(k, 2)], 0.0), k)

    return compute((x.shape[0],), total)


def test_a_loop_that_data_makes_long_ends_behind_the_dimension(monkeypatch):
    monkeypatch.setenv("TENSORLANG_CHECKED", "1")
    x = np.ones((2, 3), np.float32)
    op, inside = operator("mine.ragged")(ragged), operator("mine.guarded")(guarded)
    for far in (4, 10**6, 1 << 62):
        with pytest.raises(KernelError, match=r"index 3 in dimension 1, .* size is 3"):
            op(x, np.array([3, far]))
    assert op(x, np.array([3, 2])).tolist() == [3, 2]
    assert inside(x, np.array([7, 2])).tolist() == [3, 2]


def test_operators_of_the_library(monkeypatch):
    monkeypatch.setenv("TENSORLANG_CHECKED", "1")
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((37, 53)).astype(np.float32) for _ in range(2))
    np.testing.assert_allclose(nn.dense(x, w), x @ w.T, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(math.sort(x, 0), np.sort(x, 0))
    with pytest.raises(KernelError):
        nn.embedding(np.array([40]), x)


def test_dot_products(monkeypatch):
    monkeypatch.setenv("TENSORLANG_CHECKED", "1")
    rng = np.random.default_rng(0)

    def drawn(*shape):
        return rng.integers(-3, 4, shape).astype(ml_dtypes.bfloat16)

    x, w = drawn(40, 17), drawn(24, 17)
    sums = x.astype("f4") @ w.astype("f4").T  # exact, also rounded to bf16
    np.testing.assert_array_equal(nn.dense(x, w).astype("f4"), sums)
    np.testing.assert_array_equal(math.matmul(x, w.T).astype("f4"), sums)
    images, weights = drawn(1, 6, 7, 17), drawn(24, 17, 1, 1)
    expected = images.astype("f4") @ weights[:, :, 0, 0].astype("f4").T
    made = nn.conv2d(images, weights, layout="NHWC")
    np.testing.assert_array_equal(made.astype("f4"), expected)


def test_dot_products_of_bytes(monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (40, 17)).astype(np.uint8)
    w = rng.integers(-127, 128, (24, 17)).astype(np.int8)
    scales = rng.random(24).astype(np.float32)
    expected = nn.dense_int8(x, w, scales)
    monkeypatch.setenv("TENSORLANG_CHECKED", "1")
    np.testing.assert_array_equal(nn.dense_int8(x, w, scales), expected)


def test_random_schedules_compute_the_same(programs: ModuleType, monkeypatch):
    monkeypatch.setenv("TENSORLANG_CHECKED", "1")
    programs.fuzzing.search(programs.fuzzers.fuzzer("schedules", "llvm"), 11, 20)
