"""split, fuse and reorder: goldens, refusals, and what each rule protects."""

from __future__ import annotations

import pytest

from tensorlang.errors import ScheduleError
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.scheduling.analysis.legality import disabled
from tensorlang.scheduling.steps.loops import fuse, reorder, split

COPY = parse("""
def copy(x: f32[10], y: Out[f32[10]]):
    for i in range(10):
        with block("y", vi=spatial(10, i)):
            y[vi] = x[vi]
""")

MATMUL = parse("""
def matmul(a: f32[n, 7], b: f32[5, 7], c: Out[f32[n, 5]], *, n: i64):
    for i in range(n):
        for j in range(5):
            for k in range(7):
                with block("c", vi=spatial(n, i), vj=spatial(5, j), vk=reduction(7, k)):
                    reduce(sum, c[vi, vj], a[vi, vk] * b[vj, vk])
""")

PLAIN = parse("""
def plain(x: f32[3, 5], y: Out[f32[3, 5]]):
    for i in range(3):
        for j in range(5):
            t: f32 = x[i, j] * 2.0
            y[i, j] = t
""")

ROW_SUM = parse("""
def row_sum(x: f32[3, 4], y: Out[f32[3]]):
    for i in range(3):
        y[i] = 0.0
        for j in range(4):
            y[i] = y[i] + x[i, j]
""")

TRIANGLE = parse("""
def triangle(x: f32[5], y: Out[f32[5]]):
    for i in range(5):
        for j in range(i + 1):
            with block("y", vi=spatial(5, i), vj=reduction(5, j)):
                reduce(sum, y[vi], x[vj])
""")

SCAN = parse("""
def scan(x: f32[4, 9], y: Out[f32[4, 9]]):
    for i in range(4):
        for j in range(9):
            with block("y", vi=spatial(4, i), vj=ordered(9, j)):
                if vj == 0:
                    y[vi, vj] = x[vi, vj]
                else:
                    y[vi, vj] = y[vi, vj - 1] * 2.0 + x[vi, vj]
""")

SKEWED = parse("""
def skewed(x: f32[4, 6], y: Out[f32[4, 6]]):
    for i in range(4):
        for j in range(6):
            if (i == 0) | (j == 5):
                y[i, j] = x[i, j]
            else:
                y[i, j] = y[i - 1, j + 1] + x[i, j]
""")

LAST_OF = parse("""
@reducer(commutative=False)
def last(a: f32, b: f32):
    identity(0.0)
    return b


def last_of(x: f32[3, 4], y: Out[f32[2]]):
    for r in range(2):
        for j in range(3):
            for k in range(4):
                with block("y", vr=spatial(2, r), vj=reduction(3, j),
                           vk=reduction(4, k)):
                    reduce(last, y[vr], x[vj, vk])
""")


def test_split_that_divides(golden, same_meaning):
    after, names = split(COPY, "i", [None, 5])
    assert names == ("i_0", "i_1")
    golden(show(after))
    same_meaning(COPY, after)


def test_split_that_overshoots_guards_the_block(golden, same_meaning):
    after, _ = split(COPY, "i", 4)
    golden(show(after))
    same_meaning(COPY, after)


def test_split_in_three_with_the_middle_inferred(golden, same_meaning):
    after, names = split(COPY, "i", [2, None, 2])
    assert names == ("i_0", "i_1", "i_2")
    golden(show(after))
    same_meaning(COPY, after)


def test_split_of_a_symbolic_extent(golden, same_meaning):
    after, _ = split(MATMUL, "i", [None, 4])
    after, _ = split(after, "k", [3, None])
    golden(show(after))
    for n in (1, 4, 6):
        same_meaning(MATMUL, after, n=n)


def test_split_by_an_inferred_inner_loop(same_meaning):
    after, _ = split(MATMUL, "i", [3, None])
    for n in (1, 2, 3, 8):
        same_meaning(MATMUL, after, n=n)


def test_split_puts_plain_statements_under_an_if(golden, same_meaning):
    after, _ = split(PLAIN, "j", 2)
    golden(show(after))
    same_meaning(PLAIN, after)


def test_split_keeps_the_kind_outside(same_meaning):
    from tensorlang.scheduling.steps.annotate import parallel

    after, _ = split(parallel(COPY, "i"), "i", 2)
    assert "for i_0 in parallel(5):\n        for i_1 in range(2):" in show(after)
    same_meaning(COPY, after)


@pytest.mark.parametrize(
    ("factors", "sentence"),
    [
        ([2, 4], "runs 10 times, the factors make 8"),
        ([None, None], "at most one of them None"),
        ([10], "two factors or more"),
        ([None, 0], "a factor is at least 1, not 0"),
    ],
)
def test_split_refuses_factors(factors, sentence):
    with pytest.raises(ScheduleError, match=sentence):
        split(COPY, "i", factors)


def test_split_needs_covering_factors(wrong):
    with disabled("split factors cover the loop"):
        after, _ = split(COPY, "i", [2, 4])
    wrong(COPY, after)


def test_unknown_loops_are_listed():
    with pytest.raises(ScheduleError, match="no loop 'q'; its loops: i, j, k"):
        split(MATMUL, "q", 2)


def test_fuse(golden, same_meaning):
    after, name = fuse(MATMUL, "i", "j")
    assert name == "i_j"
    golden(show(after))
    for n in (1, 4):
        same_meaning(MATMUL, after, n=n)


def test_fuse_then_split_then_fuse_again(same_meaning):
    after, name = fuse(MATMUL, "i", "j")
    after, (outer, inner) = split(after, name, 4)
    after = reorder(after, inner, outer)
    after, _ = fuse(after, inner, outer)
    same_meaning(MATMUL, after, n=5)


def test_fuse_refuses_what_stands_between():
    with pytest.raises(ScheduleError, match="'j' is not all that loop 'i' runs"):
        fuse(ROW_SUM, "i", "j")


def test_fuse_needs_perfect_nests(wrong):
    with disabled("fused loops are perfectly nested"):
        after, _ = fuse(ROW_SUM, "i", "j")
    wrong(ROW_SUM, after)


def test_fuse_refuses_a_triangle():
    with pytest.raises(ScheduleError, match=r"extent of loop 'j' is i \+ 1"):
        fuse(TRIANGLE, "i", "j")


def test_fuse_needs_rectangles(wrong):
    with disabled("fused extents are independent"):
        after, _ = fuse(TRIANGLE, "i", "j")
    wrong(TRIANGLE, after)


def test_fuse_refuses_different_kinds():
    from tensorlang.scheduling.steps.annotate import unroll

    with pytest.raises(ScheduleError, match="'i' is serial and loop 'j' is unrolled"):
        fuse(unroll(MATMUL, "j"), "i", "j")


def test_fuse_of_extents_that_may_be_negative(same_meaning):
    func = parse("""
def shrinking(x: f32[n, m], y: Out[f32[n, m]], *, n: i64, m: i64):
    for i in range(n):
        for j in range(m):
            with block("zero", vi=spatial(n, i), vj=spatial(m, j)):
                y[vi, vj] = 0.0
    for i in range(n - 4):
        for j in range(m - 4):
            with block("y", wi=spatial(n, i), wj=spatial(m, j)):
                y[wi, wj] = x[wi, wj]
""")
    after, _ = fuse(func, "y/i", "y/j")
    for n, m in ((2, 2), (2, 6), (6, 2), (5, 7)):
        same_meaning(func, after, n=n, m=m)


def test_reorder_a_reduction_outwards(golden, same_meaning):
    after = reorder(MATMUL, "k", "i")
    golden(show(after))
    same_meaning(MATMUL, after, n=4)


def test_reorder_tiles(golden, same_meaning):
    func, (i0, i1) = split(MATMUL, "i", 3)
    func, (j0, j1) = split(func, "j", 2)
    func, (k0, k1) = split(func, "k", 4)
    after = reorder(func, k0, i0, j0, k1, i1, j1)
    golden(show(after))
    same_meaning(MATMUL, after, n=7)


def test_reorder_spatial_past_ordered(same_meaning):
    after = reorder(SCAN, "j", "i")
    same_meaning(SCAN, after)


def test_reorder_plain_statements_that_do_not_meet(same_meaning):
    after = reorder(PLAIN, "j", "i")
    same_meaning(PLAIN, after)


def test_reorder_refuses_pieces_of_an_ordered_axis():
    func, (outer, inner) = split(SCAN, "j", 3)
    with pytest.raises(ScheduleError, match="loops 'j_0', 'j_1' must keep this order"):
        reorder(func, inner, outer)


def test_reorder_refuses_a_reducer_that_does_not_commute():
    with pytest.raises(ScheduleError, match="'j', 'k' must keep this order"):
        reorder(LAST_OF, "k", "j")
    assert reorder(LAST_OF, "j", "k", "r") != LAST_OF


def test_reorder_refuses_a_repeated_update():
    func = parse("""
def repeated(x: f32[4], y: Out[f32[4]]):
    for t in range(2):
        for k in range(4):
            with block("y", vi=spatial(4, 0), vk=reduction(4, k)):
                reduce(sum, y[vi], x[vk])
""")
    with pytest.raises(ScheduleError, match="'t', 'k' must keep this order"):
        reorder(func, "k", "t")


def test_reorder_needs_dependences_kept(wrong):
    with pytest.raises(ScheduleError, match="'i', 'j' must keep this order"):
        reorder(SKEWED, "j", "i")
    with disabled("dependences keep their order"):
        after = reorder(SKEWED, "j", "i")
    wrong(SKEWED, after)


def test_reorder_needs_known_extents(wrong):
    with pytest.raises(ScheduleError, match=r"extent of loop 'j' is i \+ 1"):
        reorder(TRIANGLE, "j", "i")
    with disabled("extents are defined outside"):
        after = reorder(TRIANGLE, "j", "i")
    wrong(TRIANGLE, after)


def test_reorder_needs_perfect_nests(wrong):
    with pytest.raises(ScheduleError, match="'i' runs more than loop 'j'"):
        reorder(ROW_SUM, "j", "i")
    with disabled("reordered loops are perfectly nested"):
        after = reorder(ROW_SUM, "j", "i")
    wrong(ROW_SUM, after)


def test_reorder_refuses_loops_of_different_nests_and_doubles():
    func = parse("""
def twice(x: f32[4], y: Out[f32[4]], z: Out[f32[4]]):
    for i in range(4):
        with block("y", vi=spatial(4, i)):
            y[vi] = x[vi]
    for j in range(4):
        with block("z", vj=spatial(4, j)):
            z[vj] = x[vj]
""")
    with pytest.raises(ScheduleError, match="is not around loop"):
        reorder(func, "i", "j")
    with pytest.raises(ScheduleError, match="a loop is named twice"):
        reorder(MATMUL, "i", "i")
    with pytest.raises(ScheduleError, match="two loops or more"):
        reorder(MATMUL, "i")
