"""decompose_reduction and rfactor: the start and the parts of a reduction."""

from __future__ import annotations

import pytest

from tensorlang.errors import ScheduleError
from tensorlang.ir.text.parser import parse
from tensorlang.ir.text.printer import show
from tensorlang.scheduling.steps.reduction import decompose_reduction
from tensorlang.scheduling.steps.rfactor import rfactor

SUMS = parse("""
def rows(x: f32[n, 100], y: Out[f32[n]], *, n: i64):
    for i_0 in range((n + 3) // 4):
        for k_0 in range(7):
            for i_1 in range(4):
                for k_1 in range(16):
                    with block("y", vi=spatial(n, i_0 * 4 + i_1),
                               vk=reduction(100, k_0 * 16 + k_1),
                               where=(i_0 * 4 + i_1 < n) & (k_0 * 16 + k_1 < 100)):
                        reduce(sum, y[vi], x[vi, vk])
""")

ARGMAX = parse("""
def rows(x: f32[6, 50], m: Out[f32[6]], p: Out[i64[6]]):
    for i in range(6):
        for k_0 in range(7):
            for k_1 in range(8):
                with block("m", vi=spatial(6, i), vk=reduction(50, k_0 * 8 + k_1),
                           where=k_0 * 8 + k_1 < 50):
                    reduce(argmax, (m[vi], p[vi]), (x[vi, vk], vk))
""")

BIASED = parse("""
def biased(x: f32[6, 8], b: f32[6], y: Out[f32[6]]):
    for i in range(6):
        for k in range(8):
            with block("y", vi=spatial(6, i), vk=reduction(8, k)):
                with init():
                    y[vi] = b[vi] * 2.0
                reduce(sum, y[vi], x[vi, vk])
""")

LAST = """
@reducer(commutative=False)
def last(a: f32, b: f32):
    identity(0.0)
    return select(b == 0.0, a, b)

def rows(x: f32[40, 32], y: Out[f32[40]]):
    for i in range(40):
        for k_0 in range(4):
            for k_1 in range(8):
                with block("y", vi=spatial(40, i), vk=reduction(32, k_0 * 8 + k_1)):
                    reduce(last, y[vi], x[vi, vk])
"""

SIZES = (0, 1, 4, 9)


@pytest.mark.parametrize("loop", ["i_0", "k_0"])
def test_decompose_reduction_before(loop, golden, same_meaning):
    after, name = decompose_reduction(SUMS, "y", loop)
    assert name == "y_init"
    golden(show(after))
    for n in SIZES:
        same_meaning(SUMS, after, n=n)


def test_decompose_reduction_with_an_init_of_its_own(golden, same_meaning):
    after, _ = decompose_reduction(BIASED, "y", "k")
    golden(show(after))
    same_meaning(BIASED, after)


def test_decompose_reduction_of_a_tuple_state(golden, same_meaning):
    after, _ = decompose_reduction(ARGMAX, "m", "k_0")
    golden(show(after))
    same_meaning(ARGMAX, after)


@pytest.mark.parametrize("loop", ["k_0", "k_1"])
def test_rfactor_of(loop, golden, same_meaning):
    after, names = rfactor(SUMS, "y", loop)
    assert names == ("y_rf_part", "y_rf")
    golden(show(after))
    for n in SIZES:
        same_meaning(SUMS, after, n=n)


@pytest.mark.parametrize("axis", [0, 1])
def test_rfactor_of_argmax_at_dimension(axis, golden, same_meaning):
    after, _ = rfactor(ARGMAX, "m", "k_1", axis)
    golden(show(after))
    same_meaning(ARGMAX, after)


def test_rfactor_keeps_the_init_for_the_end(golden, same_meaning):
    after, _ = rfactor(BIASED, "y", "k")
    golden(show(after))
    same_meaning(BIASED, after)


def test_rfactor_of_an_ordered_fold_by_its_outermost_split(golden, same_meaning):
    func = parse(LAST)
    after, _ = rfactor(func, "y", "k_0")
    golden(show(after))
    same_meaning(func, after)


def test_rfactor_then_decompose(same_meaning):
    after, (part, _) = rfactor(SUMS, "y", "k_1")
    after, _ = decompose_reduction(after, part, "k_0")
    after, _ = decompose_reduction(after, "y", "y/k_1_1")
    for n in SIZES:
        same_meaning(SUMS, after, n=n)


def mixed():
    return parse("""
def mixed(x: f32[4, 3], y: Out[f32[4]]):
    for f in range(12):
        with block("y", vi=spatial(4, f // 3), vk=reduction(3, f % 3)):
            reduce(sum, y[vi], x[vi, vk])
""")


@pytest.mark.parametrize(
    ("step", "match"),
    [
        (lambda: decompose_reduction(SUMS, "y", "k_1"), "'k_0' reduces block 'y'"),
        (lambda: decompose_reduction(SUMS, "y", "j"), "'j' is not around block"),
        (lambda: rfactor(SUMS, "y", "i_1"), "drives spatial axes"),
        (lambda: rfactor(SUMS, "y", "k_0", axis=2), "it can be 0 to 1"),
        (lambda: rfactor(parse(LAST), "y", "k_1"), "not the outermost split"),
        (
            lambda: decompose_reduction(
                decompose_reduction(SUMS, "y", "i_0")[0], "y", "i_0"
            ),
            "has its init already",
        ),
    ],
)
def test_refusals_of_taking_apart(step, match):
    with pytest.raises(ScheduleError, match=match):
        step()
