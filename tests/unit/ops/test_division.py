"""Division by an invariant number: exact for every divisor and dividend."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorlang.ops.random.division import by


def quotient(n: int, divisor: int, bits: int) -> int:
    """As the kernels compute it: all in `bits` bits."""
    reciprocal, first, then = by(divisor, bits)
    top = (1 << bits) - 1
    assert 0 <= reciprocal <= top
    assert 0 <= first <= then + 1 <= bits
    high = reciprocal * n >> bits
    return ((high + ((n - high & top) >> first)) & top) >> then


@settings(max_examples=300)
@given(st.data(), st.sampled_from([32, 64]))
def test_any_two_numbers(data, bits):
    top = (1 << bits) - 1
    divisor = data.draw(st.integers(1, top))
    n = data.draw(st.integers(0, top))
    assert quotient(n, divisor, bits) == n // divisor


@pytest.mark.parametrize("bits", [32, 64])
def test_the_ends(bits):
    top = (1 << bits) - 1
    half = 1 << (bits - 1)
    for divisor in (1, 2, 3, 5, 7, 10, half - 1, half, half + 1, top - 1, top):
        near = {0, 1, divisor - 1, divisor, divisor + 1, half, top - 1, top}
        near |= {top // divisor * divisor + more for more in (-1, 0, 1)}
        for n in near:
            if 0 <= n <= top:
                assert quotient(n, divisor, bits) == n // divisor
