"""Running sums and their gradient against NumPy."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import pytest

from tensorlang import targets
from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops import math

SHAPES = [((9,), 0), ((5, 100), -1), ((6, 33), 0), ((3, 5, 20), 1), ((70_001,), 0)]


def drawn(*shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def backwards(x, axis):
    return np.flip(np.cumsum(np.flip(x, axis), axis), axis)


@pytest.mark.parametrize(("shape", "axis"), [*SHAPES, ((3, 40_960), 1)])
def test_shapes(shape, axis):
    x = drawn(*shape)
    np.testing.assert_allclose(math.cumsum(x, axis), np.cumsum(x, axis), atol=1e-10)
    np.testing.assert_allclose(
        math.cumsum_grad(x, x, axis), backwards(x, axis), atol=1e-10
    )


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(np.float32, 1e-6), (np.float16, 2e-3), (ml_dtypes.bfloat16, 1e-2)],
)
def test_types_of_floats(dtype, tolerance):
    for shape, axis in [((4, 300), 1), ((20, 18), 0), ((50_000,), 0)]:
        x = (np.abs(drawn(*shape)) / 50).astype(dtype)
        got = math.cumsum(x, axis)
        assert got.dtype == dtype
        wanted = np.cumsum(x.astype(np.float64), axis)
        np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=tolerance)


def test_integers_and_truths():
    for dtype in (np.int8, np.int32, np.uint16, np.int64, bool):
        x = np.random.default_rng(0).integers(0, 2, (3, 100)).astype(dtype)
        got, wanted = math.cumsum(x, 1), np.cumsum(x, 1)
        np.testing.assert_array_equal(got, wanted)
        assert got.dtype == wanted.dtype


def test_edges():
    assert math.cumsum(np.zeros((3, 0), np.float32)).shape == (3, 0)
    assert math.cumsum(np.zeros((0, 3), np.float32), 0).shape == (0, 3)
    x = np.array([1.0, np.inf, 2.0, -np.inf, 3.0], np.float32)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(math.cumsum(x), np.cumsum(x))
    x = drawn(40, 6)[::2].T
    np.testing.assert_allclose(math.cumsum(x), np.cumsum(x, -1), atol=1e-12)
    ones = np.full(1 << 17, 0.1, np.float32)
    assert math.cumsum(ones)[-1] == np.float32(np.float64(np.float32(0.1)) * (1 << 17))


def test_the_same_bits_with_any_number_of_threads():
    usual = targets.get(None)
    for shape, axis in [((100_003,), 0), ((64, 300), 1), ((200, 70), 0)]:
        x = drawn(*shape, dtype=np.float32)
        wanted = math.cumsum(x, axis, target=dataclasses.replace(usual, threads=1))
        several = dataclasses.replace(usual, threads=3)
        np.testing.assert_array_equal(math.cumsum(x, axis, target=several), wanted)


def test_one_kernel_for_all_sizes():
    def kernels():
        return sum(key[0] == "kernel" for key in math.cumsum.kernels)

    for shape, axis in SHAPES:
        math.cumsum(drawn(*shape), axis)
    before = kernels()
    for shape, axis in [((77,), 0), ((64, 65), 1), ((1000, 2), 0), ((99_999,), 0)]:
        x = drawn(*shape)
        np.testing.assert_allclose(math.cumsum(x, axis), np.cumsum(x, axis), atol=1e-9)
    assert kernels() == before


@pytest.mark.parametrize(
    ("op", "given", "error", "match"),
    [
        (math.cumsum, (drawn(2, 3), 2), ArgumentError, "axis 2 does not exist"),
        (math.cumsum, (drawn(2, 3), None), ArgumentError, "axis is a whole number"),
        (math.cumsum_grad, (drawn(2), drawn(3)), ShapeError, r"dy has shape \(2,\)"),
        (math.cumsum_grad, (np.arange(3), np.arange(3)), DTypeError, "not i64"),
    ],
)
def test_bad_calls(op, given, error, match):
    with pytest.raises(error, match=match):
        op(*given)
