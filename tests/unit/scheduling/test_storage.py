"""merge, store_at and store_in: rows that are made as a whole, in the result."""

from __future__ import annotations

import pytest

from tensorlang.errors import ScheduleError
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.scheduling.steps.loops import split
from tensorlang.scheduling.steps.merge import merge
from tensorlang.scheduling.steps.storage import store_at, store_in

SOFTMAX = parse("""
def softmax(x: f32[m, 5], y: Out[f32[m, 5]], *, m: i64):
    top = alloc(f32[m])
    e = alloc(f32[m, 5])
    total = alloc(f32[m])
    for i in range(m):
        for k in range(5):
            with block("top", vi=spatial(m, i), vk=reduction(5, k)):
                reduce(max, top[vi], x[vi, vk])
    for i_1 in range(m):
        for j in range(5):
            with block("e", vi=spatial(m, i_1), vj=spatial(5, j)):
                e[vi, vj] = x[vi, vj] - top[vi]
    for i_2 in range(m):
        for l in range(5):
            with block("total", vi=spatial(m, i_2), vl=reduction(5, l)):
                reduce(sum, total[vi], e[vi, vl])
    for i_3 in range(m):
        for j_1 in range(5):
            with block("y", vi=spatial(m, i_3), vj=spatial(5, j_1)):
                y[vi, vj] = e[vi, vj] * total[vi]
""")


def merged():
    func = SOFTMAX
    for loop in ("i_1", "i_2", "i_3"):
        func = merge(func, "i", loop)
    return func


def test_merged_rows(golden, same_meaning):
    after = merged()
    golden(show(after))
    for m in (1, 4):
        same_meaning(SOFTMAX, after, m=m)


def test_rows_in_the_result_and_states_of_a_row(golden, same_meaning):
    after = store_in(merged(), "e", "y")
    for name in ("top", "total"):
        after = store_at(after, name, "i")
    golden(show(after))
    for m in (1, 4):
        same_meaning(SOFTMAX, after, m=m)


def test_a_buffer_of_one_row(golden, same_meaning):
    after = store_at(merged(), "e", "i")
    golden(show(after))
    same_meaning(SOFTMAX, after, m=3)


def test_a_result_holds_a_temporary_before_anything_is_merged(same_meaning):
    same_meaning(SOFTMAX, store_in(SOFTMAX, "e", "y"), m=3)


def test_a_row_of_loops_that_were_split(golden, same_meaning):
    after, (first, second) = split(SOFTMAX, "i", [None, 2])
    for loop in ("i_1", "i_2", "i_3"):
        after, (outer, inner) = split(after, loop, [None, 2])
        after = merge(merge(after, first, outer), second, inner)
    for name in ("top", "e", "total"):
        after = store_at(after, name, second)
    golden(show(after))
    for m in (1, 4, 5):
        same_meaning(SOFTMAX, after, m=m)


SUMS = parse("""
def sums(x: f32[4, 3], y: Out[f32[3]]):
    t = alloc(f32[3])
    for k in range(4):
        for i in range(3):
            with block("t", vi=spatial(3, i), vk=reduction(4, k)):
                reduce(sum, t[vi], x[vk, vi])
    for i_1 in range(3):
        with block("y", vi=spatial(3, i_1)):
            y[vi] = 1.0
""")


@pytest.mark.parametrize(
    ("step", "match"),
    [
        (lambda: merge(SOFTMAX, "i", "i_2"), "directly follow"),
        (lambda: merge(SOFTMAX, "i_1", "i"), "directly follow"),
        (lambda: merge(SOFTMAX, "i", "k"), "directly follow"),
        (lambda: store_at(SOFTMAX, "e", "i_1"), "outside of loop"),
        (lambda: store_at(merged(), "e", "j"), "outside of loop"),
        (lambda: store_at(SOFTMAX, "x", "i"), "allocates no"),
        (lambda: store_at(SUMS, "t", "i"), "go on with it later"),
        (lambda: store_in(SOFTMAX, "top", "y"), "no result 'y' of the shape"),
        (lambda: store_in(SOFTMAX, "e", "x"), "no result 'x' of the shape"),
        (lambda: store_in(store_at(merged(), "e", "i"), "e", "y"), "no result"),
    ],
)
def test_refusals(step, match):
    with pytest.raises(ScheduleError, match=match):
        step()


def test_a_row_is_not_overwritten_while_others_are_read(same_meaning):
    before = parse("""
def rows(x: f32[3, 4], y: Out[f32[3, 4]]):
    t = alloc(f32[3, 4])
    for i in range(3):
        for j in range(4):
            with block("t", vi=spatial(3, i), vj=spatial(4, j)):
                t[vi, vj] = x[vi, vj]
    for r in range(3):
        s = alloc(f32[1])
        for k in range(4):
            with block("s", vr=spatial(3, r), vk=reduction(4, k)):
                reduce(sum, s[0], t[2 - vr, vk])
        for c in range(4):
            with block("y", vr=spatial(3, r), vc=spatial(4, c)):
                y[vr, vc] = t[vr, vc] * s[0]
""")
    same_meaning(before, before)
    with pytest.raises(ScheduleError, match="after block 'y' has overwritten it"):
        store_in(before, "t", "y")
