"""compute_at and reverse_compute_at: nests moved under each other's loops."""

from __future__ import annotations

import pytest

from tensorlang.errors import ScheduleError
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.scheduling.steps.compute_at import compute_at
from tensorlang.scheduling.steps.reverse_compute_at import reverse_compute_at

STENCIL = parse("""
def stencil(x: f32[11, 5], y: Out[f32[9, 5]]):
    t = alloc(f32[11, 5])
    for i in range(11):
        for j in range(5):
            for k in range(2):
                with block("t", vi=spatial(11, i), vj=spatial(5, j),
                           vk=reduction(2, k)):
                    reduce(sum, t[vi, vj], x[vi, vj] * 2.0)
    for i_0 in range(3):
        for i_1 in range(4):
            for j_1 in range(5):
                with block("y", vi=spatial(9, i_0 * 4 + i_1), vj=spatial(5, j_1),
                           where=i_0 * 4 + i_1 < 9):
                    y[vi, vj] = t[vi, vj] + t[vi + 2, vj] - t[vi + 1, 4 - vj]
""")

MATMUL = parse("""
def matmul(a: f32[n, 12], b: f32[12, 10], s: f32[10], y: Out[f32[n, 10]], *, n: i64):
    c = alloc(f32[n, 10])
    for k_0 in range(3):
        for i_0 in range((n + 3) // 4):
            for k_1 in range(4):
                for i_1 in range(4):
                    for j in range(10):
                        with block("c", vi=spatial(n, i_0 * 4 + i_1), vj=spatial(10, j),
                                   vk=reduction(12, k_0 * 4 + k_1),
                                   where=i_0 * 4 + i_1 < n):
                            reduce(sum, c[vi, vj], a[vi, vk] * b[vk, vj])
    u = alloc(f32[n, 10])
    for i in range(n):
        for j_1 in range(10):
            with block("u", vi=spatial(n, i), vj=spatial(10, j_1)):
                u[vi, vj] = max(c[vi, vj] + s[vj], 0.0)
    for i in range(n):
        for j_2 in range(10):
            with block("y", vi=spatial(n, i), vj=spatial(10, j_2)):
                y[vi, vj] = u[vi, 9 - vj]
""")

SOFTMAX = parse("""
def rows(x: f32[6, 9], y: Out[f32[6, 9]]):
    m = alloc(f32[6])
    s = alloc(f32[6])
    for i in range(6):
        for k in range(9):
            with block("m", vi=spatial(6, i), vk=reduction(9, k)):
                reduce(max, m[vi], x[vi, vk])
    for i_1 in range(6):
        for k_1 in range(9):
            with block("s", vi=spatial(6, i_1), vk=reduction(9, k_1)):
                reduce(sum, s[vi], x[vi, vk] - m[vi])
    for i_2 in range(6):
        for k_2 in range(9):
            with block("y", vi=spatial(6, i_2), vj=spatial(9, k_2)):
                y[vi, vj] = x[vi, vj] * s[vi] - m[vi]
""")


@pytest.mark.parametrize("loop", ["i_0", "i_1"])
def test_compute_at_a_stencil(loop, golden, same_meaning):
    after = compute_at(STENCIL, "t", loop)
    golden(show(after))
    same_meaning(STENCIL, after)


def test_compute_at_of_a_row_sum(golden, same_meaning):
    after = compute_at(SOFTMAX, "s", "i_2")
    golden(show(after))
    same_meaning(SOFTMAX, after)


def test_reverse_compute_at_runs_in_the_last_block_of_k(golden, same_meaning):
    after = reverse_compute_at(MATMUL, "u", "i_0")
    golden(show(after))
    for n in (1, 4, 10):
        same_meaning(MATMUL, after, n=n)


def test_reverse_compute_at_of_whole_rows(golden, same_meaning):
    after = reverse_compute_at(SOFTMAX, "s", "i")
    after = reverse_compute_at(after, "y", "i")
    golden(show(after))
    same_meaning(SOFTMAX, after)


@pytest.mark.parametrize(
    ("step", "match"),
    [
        (lambda: compute_at(STENCIL, "y", "i"), "must write one temporary"),
        (lambda: compute_at(SOFTMAX, "m", "i_2"), "'s' reads what 'm' computes"),
        (lambda: reverse_compute_at(STENCIL, "t", "i_0"), "no block under loop 'i_0'"),
        (lambda: reverse_compute_at(STENCIL, "y", "j"), "in 3 places"),
        (lambda: reverse_compute_at(MATMUL, "y", "i_0"), "no block under loop"),
    ],
)
def test_refusals_of_moving(step, match):
    with pytest.raises(ScheduleError, match=match):
        step()
