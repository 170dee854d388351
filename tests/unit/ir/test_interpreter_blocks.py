"""Blocks: axes, where, the start of reductions, tuple states, ordered and disjoint."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.errors import InterpreterError
from tensorlang.ir.interpreter import ALL_CHECKS, run
from tensorlang.ir.text.parser import parse


def test_a_reduction_starts_from_its_identity():
    func = parse("""
def f(x: i32[5, 4], y: Out[i32[5]]):
    for i in range(5):
        for k in range(4):
            with block("s", vi=spatial(5, i), vk=reduction(4, k)):
                reduce(max, y[vi], x[vi, vk])
""")
    x = np.random.default_rng(0).integers(-9, -1, (5, 4)).astype("i4")
    y = np.full(5, 77, "i4")
    run(func, x, y)
    assert (y == x.max(axis=1)).all()


def test_an_init_of_ones_own_runs_first_for_each_point():
    func = parse("""
def f(x: i32[5, 4], b: i32[5], y: Out[i32[5]]):
    for k in range(4):
        for i in parallel(5):
            with block("s", vi=spatial(5, i), vk=reduction(4, k)):
                with init():
                    y[vi] = b[vi]
                reduce(sum, y[vi], x[vi, vk])
""")
    x, b = np.arange(20, dtype="i4").reshape(5, 4), np.arange(5, dtype="i4")
    y = np.zeros(5, "i4")
    run(func, x, b, y)
    assert (y == b + x.sum(axis=1)).all()


def test_a_reduction_run_backwards_meets_its_state_unwritten():
    func = parse("""
def f(x: i32[4], y: Out[i32[1]]):
    for k in range(4):
        with block("s", vk=reduction(4, 3 - k)):
            reduce(sum, y[0], x[vk])
""")
    with pytest.raises(InterpreterError, match="is read, but nothing wrote it"):
        run(func, np.ones(4, "i4"), np.zeros(1, "i4"))


def test_without_reduction_axes_reduce_updates_what_is_there():
    func = parse("""
def f(x: i32[4], y: InOut[i32[4]]):
    for i in vectorized(4):
        with block("s", vi=spatial(4, i)):
            reduce(sum, y[vi], x[vi])
""")
    y = np.full(4, 10, "i4")
    run(func, np.arange(4, dtype="i4"), y)
    assert y.tolist() == [10, 11, 12, 13]


def test_a_reduction_in_a_loop_of_the_body_starts_once():
    func = parse("""
def f(x: i32[3, 2, 4], y: Out[i32[3]]):
    for i in range(3):
        for k in range(2):
            with block("s", vi=spatial(3, i), vk=reduction(2, k)):
                for j in range(4):
                    reduce(sum, y[vi], x[vi, vk, j])
""")
    x, y = np.arange(24, dtype="i4").reshape(3, 2, 4), np.zeros(3, "i4")
    run(func, x, y)
    assert (y == x.sum(axis=(1, 2))).all()


ARGMAX = """
def f(x: f32[6, 9], m: Out[f32[6]], p: Out[i64[6]]):
    for i in parallel(6):
        for k in range(9):
            with block("s", vi=spatial(6, i), vk=reduction(9, k)):
                reduce(argmax, (m[vi], p[vi]), (x[vi, vk], vk))
"""


def test_argmax_folds_both_components_at_once():
    x = np.random.default_rng(0).integers(0, 4, (6, 9)).astype("f4")
    m, p = np.zeros(6, "f4"), np.zeros(6, "i8")
    run(parse(ARGMAX), x, m, p)
    assert (p == x.argmax(axis=1)).all()
    assert (m == x.max(axis=1)).all()


def test_components_are_combined_from_the_old_state():
    func = parse("""
@reducer(commutative=False)
def fibonacci(a: i64, b: i64, c: i64, d: i64):
    identity(0, 1)
    return b, a + b + (c - d)

def f(x: i64[10], s: Out[i64[1]], t: Out[i64[1]]):
    for k in range(10):
        with block("s", vk=reduction(10, k)):
            reduce(fibonacci, (s[0], t[0]), (x[vk], x[vk]))
""")
    s, t = np.zeros(1, "i8"), np.zeros(1, "i8")
    run(func, np.zeros(10, "i8"), s, t)
    assert (s[0], t[0]) == (55, 89)


def test_logsumexp_in_one_pass():
    func = parse("""
def f(x: f32[4, 50], m: Out[f32[4]], s: Out[f32[4]]):
    for i in parallel(4):
        for k in range(50):
            with block("s", vi=spatial(4, i), vk=reduction(50, k)):
                reduce(logsumexp, (m[vi], s[vi]), (x[vi, vk], 1.0))
""")
    x = np.random.default_rng(0).normal(0, 3, (4, 50)).astype("f4")
    m, s = np.zeros(4, "f4"), np.zeros(4, "f4")
    run(func, x, m, s)
    assert np.allclose(m + np.log(s), np.log(np.exp(x.astype("f8")).sum(axis=1)))


def test_a_product_in_a_sum_is_absorbed():
    func = parse("""
def f(x: f32[2], y: Out[f32[1]]):
    for k in range(2):
        with block("s", vk=reduction(2, k)):
            reduce(sum, y[0], x[vk] * x[vk])
""")
    x, y = np.array([2.0**-12, 1 + 2.0**-12], "f4"), np.zeros(1, "f4")
    run(func, x, y)
    exact = float(x[1]) ** 2 + float(x[0]) ** 2  # in f64, which holds it
    assert y[0] == np.float32(exact)
    assert y[0] != x[1] * x[1] + x[0] * x[0]


@pytest.mark.parametrize("where", ["i * 4 + j < 10", "vi < 10"])
@pytest.mark.parametrize("kind", ["range", "parallel"])
def test_where_skips_instances(where, kind):
    func = parse(f"""
def f(x: i64[10], y: Out[i64[10]]):
    for i in {kind}(3):
        for j in range(4):
            with block("b", vi=spatial(10, i * 4 + j), where={where}):
                y[vi] = x[vi] + 1
""")
    y = np.zeros(10, "i8")
    run(func, np.arange(10), y)
    assert y.tolist() == list(range(1, 11))


def test_where_is_tested_before_the_values_of_axes_it_does_not_name():
    func = parse("""
def f(at: i64[3], y: InOut[i64[4]]):
    for i in range(8):
        with block("b", vi=opaque(4, at[i]), where=i < 3):
            y[vi] = 5
""")
    y = np.zeros(4, "i8")
    run(func, np.array([2, 0, 2]), y)
    assert y.tolist() == [5, 0, 5, 0]


def test_a_scan_runs_in_order_at_each_point():
    text = """
def f(x: i64[3, 6], y: Out[i64[3, 6]]):
    for {}:
        for {}:
            with block("scan", vi=spatial(3, i), vt=ordered(6, t)):
                if vt == 0:
                    y[vi, vt] = x[vi, vt]
                else:
                    y[vi, vt] = y[vi, vt - 1] + x[vi, vt]
"""
    x = np.arange(18).reshape(3, 6)
    nests = [("i in range(3)", "t in range(6)"), ("t in range(6)", "i in parallel(3)")]
    for loops in nests:
        y = np.zeros((3, 6), "i8")
        run(parse(text.format(*loops)), x, y)
        assert (y == x.cumsum(axis=1)).all()
    with pytest.raises(InterpreterError, match="vt does not increase"):
        run(parse(text.format("t in parallel(6)", "i in range(3)")), x, x.copy())


def test_an_ordered_block_in_a_while_starts_again():
    func = parse("""
def f(n: InOut[i64[1]], y: Out[i64[4]]):
    while n[0] > 0:
        for t in range(4):
            with block("scan", vt=ordered(4, t)):
                y[vt] = vt
        atomic("add", n[0], -1)
""")
    n, y = np.array([3]), np.zeros(4, "i8")
    run(func, n, y, checks=ALL_CHECKS - {"inout"})
    assert (n[0], y.tolist()) == (0, [0, 1, 2, 3])


@pytest.mark.parametrize("kind", ["range", "parallel"])
def test_disjoint_targets_that_are_disjoint(kind):
    func = parse(f"""
def f(x: i64[6], p: i64[6], y: Out[i64[6]]):
    for i in {kind}(6):
        with block("scatter", vi=spatial(6, i), vd=disjoint(6, p[i])):
            y[vd] = x[vi]
""")
    p, y = np.array([3, 1, 0, 5, 4, 2]), np.zeros(6, "i8")
    run(func, np.arange(6), p, y)
    assert (y[p] == np.arange(6)).all()


def test_disjoint_iterations_of_one_pass_may_meet_those_of_another():
    func = parse("""
def f(p: i64[2, 3], y: InOut[i64[3]]):
    for t in range(2):
        for i in range(3):
            with block("b", a=ordered(2, t), b=spatial(3, i), c=disjoint(3, p[t, i])):
                y[c] = a * 10 + b
""")
    y = np.zeros(3, "i8")
    run(func, np.array([[0, 1, 2], [2, 1, 0]]), y)
    assert y.tolist() == [12, 11, 10]
    with pytest.raises(InterpreterError, match="touched by two iterations"):
        run(func, np.array([[0, 1, 2], [2, 1, 2]]), y)


def test_nested_blocks_keep_their_own_starts():
    func = parse("""
def f(x: i64[2, 3, 4], y: Out[i64[2]]):
    for i in range(2):
        for k in range(3):
            with block("outer", vi=spatial(2, i), vk=reduction(3, k)):
                t = alloc(i64[1], scope="private")
                for j in range(4):
                    with block("inner", wj=reduction(4, j)):
                        reduce(sum, t[0], x[vi, vk, wj])
                reduce(sum, y[vi], t[0])
""")
    x, y = np.arange(24).reshape(2, 3, 4), np.zeros(2, "i8")
    run(func, x, y)
    assert (y == x.sum(axis=(1, 2))).all()
