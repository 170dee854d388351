"""partition and specialize: a main part without guards, a tail as a smaller tile."""

from __future__ import annotations

import pytest

from tensorlang.errors import ScheduleError
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.scheduling.analysis.legality import disabled
from tensorlang.scheduling.steps.loops import fuse, reorder, split
from tensorlang.scheduling.steps.partition import partition, specialize
from tensorlang.scheduling.steps.reduction import decompose_reduction

ROWS = parse("""
def rows(x: f32[14], y: Out[f32[14]]):
    for i in range(14):
        with block("y", vi=spatial(14, i)):
            y[vi] = x[vi] + 1.0
""")

MATMUL = parse("""
def matmul(a: f32[n, 7], b: f32[10, 7], c: Out[f32[n, 10]], *, n: i64):
    for i in range(n):
        for j in range(10):
            for k in range(7):
                with block("c", vi=spatial(n, i), vj=spatial(10, j),
                           vk=reduction(7, k)):
                    reduce(sum, c[vi, vj], a[vi, vk] * b[vj, vk])
""")


def test_partition(golden, same_meaning):
    after, names = partition(ROWS, "i", 9)
    assert names == ("i", "i_tail")
    golden(show(after))
    same_meaning(ROWS, after)


def test_partition_makes_the_tail_a_smaller_tile(golden, same_meaning):
    func, (outer, _) = split(ROWS, "i", 4)
    after, _ = partition(func, outer, 3)
    golden(show(after))
    assert "where" not in show(after)
    same_meaning(ROWS, after)


def test_choices_that_a_part_decides_are_made(golden, same_meaning):
    padded = parse("""
def padded(x: f32[10], y: Out[f32[16]]):
    for i in range(16):
        with block("y", vi=spatial(16, i)):
            y[vi] = select(vi < 10, x[min(vi, 9)], 0.0)
""")
    after, _ = partition(padded, "i", 8)
    golden(show(after))
    same_meaning(padded, after)


def test_partition_of_a_reduction_starts_it_once(golden, same_meaning):
    after, _ = partition(reorder(MATMUL, "k", "i", "j"), "k", 3)
    golden(show(after))
    for n in (1, 3):
        same_meaning(MATMUL, after, n=n)


def test_partition_needs_to_know_who_starts_a_reduction(wrong):
    with pytest.raises(ScheduleError, match="'c_tail' may start its reduction"):
        partition(MATMUL, "k", "n")
    with disabled("a reduction is initialized in one part"):
        after, (_, tail) = partition(MATMUL, "k", "n")
    after, _ = decompose_reduction(after, "c_tail", tail)
    wrong(MATMUL, after, n=3)


def test_partition_refuses_a_loop_that_is_spatial_and_reduced():
    func, name = fuse(MATMUL, "j", "k")
    with pytest.raises(ScheduleError, match="may start its reduction in the tail"):
        partition(func, name, 9)


def test_partition_after_decompose_goes_anywhere(same_meaning):
    func, _ = decompose_reduction(MATMUL, "c", "k")
    after, _ = partition(func, "k", "n")
    for n in (1, 3, 9):
        same_meaning(MATMUL, after, n=n)


def test_partition_in_both_directions_leaves_no_guard(same_meaning):
    func, (j0, j1) = split(MATMUL, "j", 4)
    func, (k0, k1) = split(func, "k", 3)
    func = reorder(func, j0, k0, k1, j1)
    func, (_, j_tail) = partition(func, j0, 2)
    func, _ = partition(func, k0, 2)
    after, _ = partition(func, "k_0_tail", 2)
    assert j_tail == "j_0_tail"
    assert "where" not in show(after)
    same_meaning(MATMUL, after, n=2)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 11])
def test_partition_at_an_expression(same_meaning, n):
    func, (outer, _) = split(MATMUL, "i", 4)
    after, _ = partition(func, outer, "n // 4")
    same_meaning(MATMUL, after, n=n)


@pytest.mark.parametrize("at", ["n - 3", "n + 1", "7 - n", "3"])
@pytest.mark.parametrize("n", [1, 5])
def test_partition_cuts_off_what_is_outside(same_meaning, at, n):
    after, _ = partition(MATMUL, "i", at)
    same_meaning(MATMUL, after, n=n)


def test_partition_halves_are_partitioned_apart(same_meaning):
    after, (main, tail) = partition(ROWS, "i", 9)
    after, _ = partition(after, main, 4)
    after, (_, last) = partition(after, tail, 2)
    assert last == "i_tail_tail"
    same_meaning(ROWS, after)


def test_partition_keeps_temporaries_apart(same_meaning):
    func = parse("""
def staged(x: f32[6, 3], y: Out[f32[6]]):
    for i in range(6):
        t = alloc(f32[3])
        for j in range(3):
            with block("t", vi=spatial(6, i), vj=spatial(3, j)):
                t[vj] = x[vi, vj] * 2.0
        for k in range(3):
            with block("y", wi=spatial(6, i), wk=reduction(3, k)):
                reduce(sum, y[wi], t[wk])
""")
    after, _ = partition(func, "i", 4)
    assert "t_tail = alloc(f32[3])" in show(after)
    same_meaning(func, after)


@pytest.mark.parametrize(
    ("at", "sentence"),
    [
        (0, "an empty main part"),
        (14, "14 iterations, so cutting at 14 leaves an empty tail"),
        ("q + 1", "partition: 'q \\+ 1' is not an expression"),
        ("x[0] > 0.0", "is not an expression"),
        ("3; 4", "is not an expression"),
        ("3)\n    evaluate(4", "is more than one expression"),
        ("True", "counts in i64, the cut is True of bool"),
    ],
)
def test_partition_refuses_cuts(at, sentence):
    with pytest.raises(ScheduleError, match=sentence):
        partition(ROWS, "i", at)


def test_specialize_puts_the_size_in(golden, same_meaning):
    after, other = specialize(MATMUL, "i", "n == 4")
    assert other == "i_else"
    golden(show(after))
    for n in (3, 4):
        same_meaning(MATMUL, after, n=n)


def test_specialize_lets_split_do_without_a_guard(golden, same_meaning):
    after, other = specialize(MATMUL, "i", "n % 4 == 0")
    after, _ = split(after, "i", 4)
    after, _ = split(after, other, 4)
    golden(show(after))
    for n in (4, 5, 8):
        same_meaning(MATMUL, after, n=n)


def test_a_reduction_without_steps_keeps_its_initial_value():
    func = parse("""
def sums(x: f32[n, 0], y: Out[f32[n]], *, n: i64):
    for i in range(n):
        for k in range(0):
            with block("y", vi=spatial(n, i), vk=reduction(0, k)):
                reduce(sum, y[vi], x[vi, vk])
""")
    for after in (specialize(func, "i", "n >= 8"), partition(func, "i", 3)):
        assert show(after[0]).count("reduce(sum") == 2


def test_specialize_inside_a_reduction(same_meaning):
    func = reorder(MATMUL, "k", "i", "j")
    after, _ = specialize(func, "i", "k < 2")
    same_meaning(MATMUL, after, n=3)


@pytest.mark.parametrize(
    ("condition", "sentence"),
    [
        ("n + 1", "is i64, not a condition"),
        ("j < 2", "'j < 2' is not an expression"),
        ("n <", "is not an expression"),
    ],
)
def test_specialize_refuses_conditions(condition, sentence):
    with pytest.raises(ScheduleError, match=sentence):
        specialize(MATMUL, "i", condition)


def test_partition_of_a_symbolic_split_leaves_no_guard_in_the_main_part(golden):
    func, (outer, _) = split(MATMUL, "i", 4)
    after, _ = partition(func, outer, "n // 4")
    golden(show(after))
