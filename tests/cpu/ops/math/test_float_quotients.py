"""Quotients and remainders of floats, as NumPy's, which are exact; gradients."""

import numpy as np
import pytest

from tensorlang.ops import math

SPECIAL = [(0, 1), (-0.0, 1), (1, 0), (0, 0), (5, np.inf), (-5, np.inf), (5, -np.inf)]
SPECIAL += [(np.inf, 2), (np.nan, 2), (7, np.nan), (6, 3), (-6, 3), (-7, 2), (7, -2)]


def pairs(dtype, reach):
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=(2, 500)) * 10 ** rng.uniform(-reach, reach, (2, 500))
    return np.concatenate([drawn, np.array(SPECIAL).T], 1).astype(dtype)


@pytest.mark.parametrize(
    ("dtype", "reach"), [("float16", 2), ("float32", 18), ("float64", 45)]
)
def test_remainders_are_exact(dtype, reach) -> None:
    a, b = pairs(dtype, reach)
    with np.errstate(all="ignore"):
        wanted = np.remainder(a, b)
    np.testing.assert_array_equal(math.remainder(a, b), wanted, strict=True)


@pytest.mark.parametrize(
    ("dtype", "epsilon"), [("float16", 1e-3), ("float32", 2e-7), ("float64", 3e-16)]
)
def test_quotients_are_rounded_down(dtype, epsilon) -> None:
    a, b = pairs(dtype, 2)
    with np.errstate(all="ignore"):
        wanted = np.floor_divide(a, b)
    np.testing.assert_allclose(math.floor_divide(a, b), wanted, rtol=epsilon, atol=0)


def test_gradients() -> None:
    a, b = np.float32([7.5, -7.5, 6]), np.float32([2, 2, -4])
    da, db = math.remainder_grad(np.ones(3, np.float32), a, b)
    np.testing.assert_array_equal(da, 1)
    np.testing.assert_array_equal(db, -np.floor(a / b))
    for each in math.floor_divide_grad(np.ones(3, np.float32), a, b):
        np.testing.assert_array_equal(each, 0)
