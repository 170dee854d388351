"""What is proved about loops over parts of symbolic lengths; shapes are not shared."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorlang.ir import compute, function, placeholder, show, size, verify
from tensorlang.ir.integers.bounds import bounds, prove
from tensorlang.ir.nodes import Var, binary

N, K, LANE, Z = Var("n"), Var("k"), Var("lane"), Var("z")
SMALL = st.integers(-5, 5)
DIVISORS = ["n", "(n + 3) // 4", "n // 3 + 1", "n * k", "n * k + 1", "n - 2"]
DIVIDENDS = ["z", "z + n", "4 * z - 5", "z * k"]


@pytest.mark.parametrize(
    "length", [N, N - 100, (N + 8191) // 8192, N - N // 8192 * 8192]
)
def test_whole_steps_stay_inside_of_any_length(length):
    ranges = {N: (0, None), K: (0, length // 64 - 1), LANE: (0, 63)}
    at = K * 64 + LANE
    assert prove(at < length, ranges) is True
    assert prove(at < length - 1, ranges) is None


def test_a_remainder_is_less_than_its_divisor():
    blocks = (N + 63) // 64
    rest = N - Z % blocks * 64
    ranges = {N: (0, 1 << 40), Z: (0, 1 << 40)}
    assert prove(rest >= 1, ranges) is True
    assert prove(rest >= 2, ranges) is None
    steps = (binary("min", rest, 64) + 15) // 64
    assert prove(steps * 4 + K >= 0, {**ranges, K: (0, 7)}) is True


@given(
    st.sampled_from(DIVIDENDS),
    st.sampled_from(DIVISORS),
    st.tuples(SMALL, SMALL, SMALL, SMALL),
    st.tuples(*[st.tuples(SMALL, st.integers(0, 4))] * 3),
)
def test_bounds_of_quotients_hold_for_all_values(x, d, times, ends):
    terms = ("n", f"(({x}) % ({d}))", f"(({x}) // ({d}))", "1")
    text = " + ".join(f"{a} * {b}" for a, b in zip(times, terms, strict=True))
    expr = eval(text, {"n": N, "k": K, "z": Z})
    ranges = {v: (a, a + b) for v, (a, b) in zip((N, K, Z), ends, strict=True)}
    values = [
        eval(text, given)
        for each in product(*(range(low, high + 1) for low, high in ranges.values()))
        if eval(d, given := dict(zip("nkz", each, strict=True)))
    ]
    if not values:
        return
    low, high = bounds(expr, ranges)
    assert low <= min(values)
    assert max(values) <= high
    for limit in {low, high, min(values), max(values), 0}:
        found = {value >= limit for value in values}
        assert prove(expr >= limit, ranges) in (
            None,
            *(found if len(found) == 1 else ()),
        )


def test_shapes_of_tensors_are_no_part_of_what_is_shared():
    n = size("n")
    shape = ((n + 7) // 8,)
    x, z = placeholder(shape, "f32", "x"), placeholder(shape, "f32", "z")
    func = function("f", [x, z], [compute(shape, lambda i: x[i] * z[i], "y")])
    verify(func)
    assert "y[vi] = x[vi] * z[vi]" in show(func)
