"""What loaded integers may be, derived from what a function touches."""

import pytest

from tensorlang.ir import parse
from tensorlang.ir.domains import domains

HEAD = """
def f(x: f32[7, 5], ids: i32[9], far: i64[9], y: Out[f32[9]]):
    for i in range(9):
        {body}
"""
CASES = {
    "y[i] = x[cast(i64, ids[i]), 2]": {"ids": (0, 6)},
    "y[i] = x[cast(i64, ids[i]) + 2, 2]": {"ids": (-2, 4)},
    "y[i] = x[6 - cast(i64, ids[i]), far[i]]": {"ids": (0, 6), "far": (0, 4)},
    "y[i] = x[cast(i64, ids[i]) * 2, 0]": {"ids": (0, 3)},
    "y[i] = x[min(max(far[i], 0), 6), 0]": {},
    "y[i] = x[far[i] // 4, 0]": {"far": (0, 27)},
    "y[i] = x[far[cast(i64, ids[i])], 0]": {"far": (0, 6), "ids": (0, 8)},
    "y[i] = x[(far[i] * 5 + cast(i64, ids[i])) // 5, 0]": {
        "far": (0, 6),
        "ids": (0, 4),
    },
    "evaluate(check((far[i] >= 2) & (far[i] < 5) | (far[i] == -100), 1))": {
        "far": (2, 4)
    },
}


@pytest.mark.parametrize("body", CASES)
def test_what_is_touched_says_what_indices_are(body):
    found = domains(parse(HEAD.format(body=body)), {})
    assert {name: domain.interval for name, domain in found.named.items()} == CASES[
        body
    ]
    assert found.complete


def test_loops_over_data_end_and_stay_inside():
    func = parse("""
def f(x: f32[9, 12], lengths: i32[9], y: Out[f32[9]]):
    for i in range(9):
        y[i] = 0.0
        for k in range(cast(i64, lengths[i])):
            y[i] = y[i] + x[i, k]
""")
    assert domains(func, {}).named["lengths"].interval == (0, 12)


def test_divisors_are_not_zero():
    func = parse("""
def f(a: i32[9], b: i32[9], c: i32[9], y: Out[i32[9]]):
    for i in range(9):
        y[i] = a[i] // b[i] + (a[i] << c[i])
""")
    named = domains(func, {}).named
    assert named["b"].nonzero
    assert set(named) == {"b"}


def test_what_is_not_understood_is_said():
    func = parse("""
def f(a: i32[9], b: i32[9], y: Out[i32[9]]):
    for i in range(9):
        y[i] = a[i] // (a[i] - b[i])
""")
    assert not domains(func, {}).complete
