"""Weighted sums of elements along an axis, and their gradients, against matrices."""

import numpy as np
import pytest

from tensorlang.errors import DTypeError, ShapeError
from tensorlang.ops import nn

EPSILON = {"float64": 1e-12, "float32": 1e-5, "float16": 1e-2}


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("taps", [0, 1, 2, 6])
@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 5, 4), 1), ((2, 3, 37), -1), ((6,), 0), ((2, 5, 0), 1)]
)
def test_results_and_gradients(shape, axis, taps, dtype) -> None:
    rng = np.random.default_rng(0)
    x, size = rng.standard_normal(shape).astype(dtype), shape[axis]
    at = rng.integers(-2, size + 2, (taps, 19))
    weights = rng.standard_normal((taps, 19)).astype(dtype)
    matrix = np.zeros((19, size))
    for t, o in np.ndindex(at.shape):
        matrix[o, np.clip(at[t, o], 0, size - 1)] += weights[t, o]
    lines = np.moveaxis(x.astype(float), axis, -1)
    y = nn.resample(x, at, weights, axis)
    np.testing.assert_allclose(
        np.moveaxis(y, axis, -1), lines @ matrix.T, rtol=0, atol=EPSILON[dtype]
    )
    assert y.dtype == dtype
    dy = rng.standard_normal(y.shape).astype(dtype)
    dx, dweights = nn.resample_grad(dy, x, at, weights, axis)
    slopes = np.moveaxis(dy.astype(float), axis, -1)
    np.testing.assert_allclose(
        np.moveaxis(dx, axis, -1), slopes @ matrix, rtol=0, atol=4 * EPSILON[dtype]
    )
    wanted = np.sum(lines[..., at.clip(0, size - 1)] * slopes[..., None, :], axis=None)
    np.testing.assert_allclose(
        dweights.sum(dtype=float), wanted, rtol=0, atol=200 * EPSILON[dtype]
    )


def test_arguments_that_do_not_fit() -> None:
    x, at = np.ones((2, 3), np.float32), np.zeros((2, 4), np.int64)
    weights = np.ones((2, 4), np.float32)
    with pytest.raises(ShapeError, match="have one shape"):
        nn.resample(x, at, weights[0])
    with pytest.raises(ShapeError, match="no elements along axis 1"):
        nn.resample(x[:, :0], at, weights)
    with pytest.raises(DTypeError, match="positions takes i32, i64"):
        nn.resample(x, weights, weights)
    out = np.empty((2, 4), np.float32)
    assert nn.resample(x[:, ::-1], at.astype(np.int32), weights, out=out) is out
    np.testing.assert_array_equal(out, 2)
