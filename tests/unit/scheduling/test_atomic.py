"""Atomic updates: what becomes one, and what may run at once then."""

import numpy as np
import pytest

from tensorlang.errors import ScheduleError
from tensorlang.ir import run
from tensorlang.ir.text.parser import parse
from tensorlang.ir.verification.verifier import verify
from tensorlang.scheduling import Schedule

TOTAL = parse("""
def total(x: i32[1000], y: Out[i32[1]]):
    for k in range(1000):
        with block("y", vk=reduction(1000, k)):
            reduce(sum, y[0], x[vk])
""")


def blocks_that_add():
    """Each block folds a part, and adds it to the total."""
    s = Schedule(TOTAL)
    parts, _ = s.split("k", [None, 250])
    part, _ = s.rfactor("y", parts)
    last = s.loops("y")[-1]
    s.decompose_reduction("y", last)
    s.atomic("y")
    s.compute_at(part, last)
    s.bind(last, "block.x")
    return s


def test_blocks_fold_one_result_by_atomic_updates(golden):
    s = blocks_that_add()
    golden(repr(s.function))
    verify(s.function)
    x, y = np.arange(1000, dtype="i4"), np.zeros(1, "i4")
    run(s.function, x, y)
    assert y[0] == x.sum()


def test_without_it_the_blocks_are_not_independent():
    s = Schedule(TOTAL)
    parts, _ = s.split("k", [None, 250])
    s.decompose_reduction("y", parts)
    with pytest.raises(ScheduleError, match="not independent"):
        s.bind(parts, "block.x")
    s.atomic("y")
    s.bind(parts, "block.x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            """
def f(x: f32[8], y: Out[f32[1]], z: Out[i64[1]]):
    for k in range(8):
        with block("y", vk=reduction(8, k)):
            reduce(argmax, (y[0], z[0]), (x[vk], vk))
""",
            "does not reduce one value into one element",
        ),
        (
            """
@reducer(commutative=True)
def lse(a: f32, b: f32):
    identity(f32("-inf"))
    return log(exp(a) + exp(b))


def f(x: f32[8], y: Out[f32[1]]):
    for k in range(8):
        with block("y", vk=reduction(8, k)):
            reduce(lse, y[0], x[vk])
""",
            "reduces by 'lse', which is not one of add, mul",
        ),
        (
            """
def f(x: f32[8], y: Out[f32[1]]):
    for k in range(8):
        with block("y", vk=reduction(8, k)):
            reduce(sum, y[0], x[vk])
""",
            "starts its state; decompose_reduction first",
        ),
        (
            """
def f(x: f32[8], y: Out[f32[8]]):
    for k in range(8):
        with block("y", vk=spatial(8, k)):
            y[vk] = x[vk]
""",
            "does not reduce one value into one element",
        ),
    ],
)
def test_what_is_not_atomic(text, message):
    with pytest.raises(ScheduleError, match=message):
        Schedule(parse(text)).atomic("y")
