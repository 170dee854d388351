"""Loads that are zero outside of their array."""

import pytest

from tensorlang.ir.nodes import Block, Store
from tensorlang.ir.simplification.zero_fill import filled, without_lets
from tensorlang.ir.text.parser import parse
from tensorlang.ir.visit import walk

TEXT = """
def copied(x: f32[n, 8], y: Out[f32[n, 8]], *, n: i64):
    for i in range(n):
        for j in range(8):
            with block("y", vi=spatial(n, i), vj=spatial(8, j)):
                t: i64 = vj - 1
                y[vi, vj] = VALUE
"""
CLAMPED = "x[min(vi, n - 1), min(max(t, 0), 7)]"


def source(value):
    (block,) = (
        n for n in walk(parse(TEXT.replace("VALUE", value))) if isinstance(n, Block)
    )
    store = without_lets(block.body)
    assert isinstance(store, Store)
    return filled(store.value)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("x[vi, vj]", "x[vi, vj]"),
        (f"select((t >= 0) & (t < 8) & (vi < n), {CLAMPED}, 0.0)", "x[vi, vj - 1]"),
        (
            f"select(vi < n, select((t > -1) & (t <= 7), {CLAMPED}, 0.0), 0.0)",
            "x[vi, vj - 1]",
        ),
        (
            f"select((t >= 0) & (t < 8) & (vi < n) & (vj < 12), {CLAMPED}, 0.0)",
            "x[vi, vj - 1]",
        ),
    ],
)
def test_zeros_outside_are_those_of_the_load(value, found):
    assert repr(source(value)) == found


@pytest.mark.parametrize(
    "value",
    [
        f"select((t >= 0) & (t < 8), {CLAMPED}, 0.0)",  # the last row again
        f"select((t >= 0) & (t < 7) & (vi < n), {CLAMPED}, 0.0)",  # zero inside
        f"select((t >= 0) & (t < 8) & (vi < n), {CLAMPED}, 1.0)",
        f"select((t % 2 == 0) & (t < 8) & (vi < n), {CLAMPED}, 0.0)",
        "x[vi, vj] + 1.0",
    ],
)
def test_other_values_are_not(value):
    assert source(value) is None
