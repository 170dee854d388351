"""Choices that C makes lazily: one condition, and places without bounds."""

import pytest

from tensorlang.codegen.c_family.selects import tidy_selects
from tensorlang.ir.text.parser import parse

FORM = """
def f(x: f32[112], y: Out[f32[9]], *, n: i64):
    r = alloc(f32[2], scope="register")
    for t in range(n):
        y[t] = {}
""".format
CASES = {
    "select((t - 1 >= 0) & (t - 1 < 112), x[min(max(t - 1, 0), 111)], 0.0)": (
        "select((t - 1 >= 0) & (t - 1 < 112), x[t - 1], 0.0)"
    ),
    "select((t >= 1) & (t <= 111), x[max(min(t, 111), 0)], 0.0)": (
        "select((t >= 1) & (t <= 111), x[t], 0.0)"
    ),
    "select((t > -1) & (t < 223), x[min(max(t // 2, 0), 111)], 0.0)": (
        "select((t > -1) & (t < 223), x[t // 2], 0.0)"
    ),
}


def tidied(value):
    return str(tidy_selects(parse(FORM(value)))).split("y[t] = ")[1].strip()


@pytest.mark.parametrize("value", CASES)
def test_bounds_that_a_condition_has(value):
    assert tidied(value) == CASES[value]


@pytest.mark.parametrize(
    "value",
    [
        "select((t >= 0) & (t < 113), x[min(t, 111)], 0.0)",
        "select((t >= 0) | (t < 112), x[min(max(t, 0), 111)], 0.0)",
        "select(t >= 0, 0.0, x[max(t, 0)])",
        "select(t < 112, x[max(t, 0)], 0.0)",
    ],
)
def test_bounds_that_it_has_not(value):
    assert tidied(value) == value


def test_choices_of_one_value_are_one():
    value = "select(r[0] != r[0], r[0], select(r[0] > r[1], r[0], r[1]))"
    assert tidied(value) == "select((r[0] != r[0]) | (r[0] > r[1]), r[0], r[1])"
    value = "select(t < 9, 0.0, select(x[t] > 1.0, 0.0, 1.0))"
    assert tidied(value) == value  # where t is less, there may be no x[t]
