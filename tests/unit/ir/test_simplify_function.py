"""Whole functions, simplified: the text that comes out, and that it means the same."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.ir.interpreter import run
from tensorlang.ir.simplification.simplify import simplify_function
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show

SPLIT = """
def f(x: f32[n, 20], y: Out[f32[n, 20]], *, n: i64):
    for i_0 in range((n + 7) // 8):
        for i_1 in range(8):
            for j_0 in range(1):
                for j_1 in range(20):
                    with block(
                        "b",
                        vi=spatial(n, i_0 * 8 + i_1),
                        vj=spatial(20, j_0 * 20 + j_1),
                        where=(i_0 * 8 + i_1 < n) & (j_1 < 20) & (i_0 >= 0),
                    ):
                        y[vi, vj] = x[vi, (vj + n * 20) % 20] + 1.0
"""

GUARDS = """
def g(x: InOut[f32[n]], *, n: i64):
    for i in range(n):
        if i * 2 + 3 < n * 2 + 3:
            x[i] = x[i] + 1.0
        else:
            x[0] = 3.0
        if n == 0:
            x[0] = 9.0
        if i < 4:
            if i < 3 + 2:
                x[i] = x[i] * 2.0
            if i >= 4:
                x[i] = 0.0
        else:
            if i > 3:
                x[i] = x[i] - 1.0
    for q in range(0):
        x[q] = 1.0
    for e in range(n):
        if e > n:
            x[e] = 0.0
    t: i64 = n * 4
    if t < n * 4 + 1:
        x[t // 4 - n] = 5.0
    while n < 0:
        x[0] = 1.0
    evaluate(check(n * 0 == 0, 3))
"""

BOUND = """
def h(x: Out[f32[1]]):
    for b in bound(1, "block.x"):
        x[b] = 1.0
"""


@pytest.mark.parametrize(
    "text", [SPLIT, GUARDS, BOUND], ids=["split", "guards", "bound"]
)
def test_simplified_text(text, golden):
    simple = simplify_function(parse(text))
    assert simplify_function(simple) == simple
    golden(show(simple))


@pytest.mark.parametrize("n", [1, 7, 8, 13])
def test_a_guarded_split_means_the_same(n):
    func = parse(SPLIT)
    x = np.arange(n * 20, dtype=np.float32).reshape(n, 20)
    before, after = np.zeros_like(x), np.zeros_like(x)
    run(func, x, before, n=n)
    run(simplify_function(func), x, after, n=n)
    np.testing.assert_array_equal(before, x + 1)
    np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("n", [1, 3, 4, 9])
def test_guards_mean_the_same(n):
    func = parse(GUARDS)
    before = np.arange(n, dtype=np.float32)
    after = before.copy()
    run(func, before, n=n)
    run(simplify_function(func), after, n=n)
    np.testing.assert_array_equal(after, before)


def test_a_condition_that_reads_memory_is_no_fact():
    """A store between may make it false again."""
    func = parse(
        """
def f(a: InOut[i64[2]]):
    if a[0] < 3:
        a[0] = 5
        if a[0] < 4:
            a[1] = 1
"""
    )
    assert simplify_function(func) == func


BLOCKS = """
def f(x: InOut[f32[m, n]], *, m: i64, n: i64):
    for z in range(m * ((n + 63) // 64)):
        for i in range(min(n - z % ((n + 63) // 64) * 64, 64) // 4):
            if i < 0:
                x[0, 0] = 1.0
        x[0, 0] = x[0, 0] + 1.0
    for i in range(m % n):
        if i < 0:
            x[0, 0] = 1.0
"""


def test_an_empty_loop_is_dropped_if_its_extent_does_not_fault():
    text = show(simplify_function(parse(BLOCKS)))
    assert "for i in range(min(" not in text
    assert "for i in range(m % n)" in text  # a division by zero is preserved
