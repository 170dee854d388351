"""inline: values into their readers, and epilogues into what they read."""

from __future__ import annotations

import pytest

from tensorlang.errors import ScheduleError
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.scheduling.steps.inline import inline

CHAIN = parse("""
def chain(x: f32[n, 7], b: f32[7], y: Out[f32[n, 7]], z: Out[f32[7, n]], *, n: i64):
    t = alloc(f32[7, n])
    for i in range(n):
        for j in range(7):
            with block("t", vi=spatial(n, i), vj=spatial(7, j)):
                h: f32 = x[vi, vj] + b[vj]
                t[vj, vi] = h * h
    for i in range(n):
        for j in range(7):
            with block("y", vi=spatial(n, i), vj=spatial(7, j)):
                y[vi, vj] = t[vj, vi] * 2.0 + t[vj, vi]
    for i in range(n):
        for j in range(7):
            with block("z", vi=spatial(n, i), vj=spatial(7, j)):
                w: f32 = t[6 - vj, n - 1 - vi]
                z[vj, vi] = w
""")

EPILOGUE = parse("""
def dense(x: f32[9, 5], w: f32[6, 5], b: f32[6], y: Out[f32[9, 6]]):
    t = alloc(f32[9, 6])
    for i in range(3):
        tile = alloc(f32[4, 6], scope="register")
        for i_1 in range(4):
            for j in range(6):
                for k in range(5):
                    with block("tile", vi=spatial(9, i * 4 + i_1), vj=spatial(6, j),
                               vk=reduction(5, k), vt=spatial(4, i_1),
                               where=i * 4 + i_1 < 9):
                        reduce(sum, tile[vt, vj], x[vi, vk] * w[vj, vk])
        for i_2 in range(4):
            for j_1 in range(6):
                with block("t", vi=spatial(9, i * 4 + i_2), vj=spatial(6, j_1),
                           vt=spatial(4, i_2), where=i * 4 + i_2 < 9):
                    t[vi, vj] = tile[vt, vj]
    u = alloc(f32[9, 6])
    for i in range(9):
        for j in range(6):
            with block("u", vi=spatial(9, i), vj=spatial(6, j)):
                h: f32 = t[vi, vj] + b[vj]
                u[vi, vj] = h
    for i in range(9):
        for j in range(6):
            with block("y", vi=spatial(9, i), vj=spatial(6, j)):
                y[vi, vj] = max(u[vi, vj], 0.0)
""")


def test_inline_with_lets_into_two_readers(golden, same_meaning):
    after = inline(CHAIN, "t")
    golden(show(after))
    for n in (1, 5):
        same_meaning(CHAIN, after, n=n)


def test_inline_an_epilogue_into_a_ragged_write_back(golden, same_meaning):
    after = inline(EPILOGUE, "u", reverse=True)
    after = inline(after, "y", reverse=True)
    golden(show(after))
    same_meaning(EPILOGUE, after)


def test_inline_forward_then_reverse(golden, same_meaning):
    after = inline(inline(EPILOGUE, "u"), "y", reverse=True)
    golden(show(after))
    same_meaning(EPILOGUE, after)


IN_PARTS = parse("""
def f(x: f32[9], b: f32[9], y: Out[f32[9]]):
    t = alloc(f32[9])
    for i in range(6):
        with block("t", vi=spatial(9, i)):
            t[vi] = x[vi] * 2.0
    for i in range(3):
        with block("t_tail", vi=spatial(9, i + 6)):
            t[vi] = x[vi] + x[vi]
    for i in range(9):
        with block("y", vi=spatial(9, i)):
            y[vi] = max(t[vi] + b[vi], 0.0)
""")


def test_inline_an_epilogue_into_all_parts_of_a_nest(golden, same_meaning):
    after = inline(IN_PARTS, "y", reverse=True)
    golden(show(after))
    same_meaning(IN_PARTS, after)


@pytest.mark.parametrize(
    ("step", "match"),
    [
        (lambda: inline(CHAIN, "y"), "allocates no 'y'"),
        (lambda: inline(EPILOGUE, "tile"), "does more than store one value"),
        (lambda: inline(CHAIN, "y", reverse=True), "'z' reads 't' too"),
        (lambda: inline(CHAIN, "t", reverse=True), "reads no temporary"),
    ],
)
def test_refusals_of_inlining(step, match):
    with pytest.raises(ScheduleError, match=match):
        step()
