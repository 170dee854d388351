"""sort, argsort and the gradient against NumPy: types, ties, NaN, both algorithms."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops import math

TYPES = [
    np.float32,
    np.float64,
    np.float16,
    ml_dtypes.bfloat16,
    np.int8,
    np.uint16,
    np.int32,
    np.uint64,
    np.int64,
    bool,
]
SHAPES = [((100,), 0), ((3, 1000), 1), ((4, 33), 1), ((6, 5), 0), ((2, 1, 3), 2)]


def drawn(*shape, seed=0, dtype=np.float64):
    """Numbers with many ties."""
    values = np.random.default_rng(seed).standard_normal(shape) * 20
    return values.round().astype(dtype)


def wide(x):
    return x if x.dtype.kind in "iub" else x.astype(np.float64)


def order(x, axis, *, descending):
    """The stable order."""
    if not descending:
        return np.argsort(x, axis, kind="stable")
    turned = np.argsort(np.flip(x, axis), axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - turned, axis)


def check(x, axis, *, descending=False):
    wanted = order(wide(x), axis, descending=descending)
    values = np.take_along_axis(wide(x), wanted, axis)
    got = math.sort(x, axis, descending)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(wide(got), values)
    got = math.argsort(x, axis, descending)
    assert got.dtype == np.int64
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", TYPES)
def test_types(dtype):
    check(drawn(3, 70, dtype=dtype), 1)
    check(drawn(2, 500, dtype=dtype), 1)
    if dtype in (np.float32, np.int8, np.uint64, bool):
        check(drawn(3, 70, dtype=dtype), 1, descending=True)
        check(drawn(2, 500, dtype=dtype), 1, descending=True)


def test_shapes():
    for shape, axis in SHAPES:
        check(drawn(*shape), axis)
    for shape, axis in [((3, 0), 1), ((0, 3), 1), ((0, 3), 0)]:
        assert math.sort(np.zeros(shape), axis).shape == shape
        assert math.argsort(np.zeros(shape), axis).shape == shape
    x = drawn(300, 9)[::2].T[::2]
    check(x, 1)
    out = np.zeros((9, 600))[:, ::2]
    math.sort(drawn(9, 300), out=out)
    np.testing.assert_array_equal(out, np.sort(drawn(9, 300)))


@pytest.mark.parametrize("length", [50, 700])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_nan_infinities_and_zeros(length, dtype):
    x = drawn(2, length, dtype=dtype)
    x[0, [3, 9]], x[0, [4, 7]] = np.nan, (np.inf, -np.inf)
    x[0, 11] = -np.nan
    x[1] = np.where(np.arange(length) % 3, 0.0, -0.0)
    np.testing.assert_array_equal(math.sort(x), np.sort(x))
    np.testing.assert_array_equal(
        math.argsort(x), np.argsort(x.astype(np.float64), kind="stable")
    )
    falling = math.sort(x, descending=True)
    assert np.isnan(falling[0, :3]).all()
    assert falling[0, 3] == np.inf


@pytest.mark.parametrize("shape", [(3, 40), (2, 300), (300, 4)])
def test_the_gradient(shape):
    axis = 1 if shape[1] > shape[0] else 0
    for dtype in (np.float64, np.float32, ml_dtypes.bfloat16):
        x, dy = drawn(*shape, dtype=dtype), drawn(*shape, seed=1, dtype=dtype)
        for descending in (False, True):
            wanted = np.zeros(shape)
            places = order(wide(x), axis, descending=descending)
            np.put_along_axis(wanted, places, wide(dy), axis)
            got = math.sort_grad(dy, x, axis, descending)
            np.testing.assert_array_equal(wide(got), wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int16, np.int64])
def test_lengths_of_networks(dtype):
    for length in (1, 2, 15, 17, 33, 64, 65, 127, 129, 257, 513, 900, 5000):
        check(drawn(3, length, dtype=dtype), 1)
        check(drawn(3, length, dtype=dtype), 1, descending=True)


def test_extreme_keys():
    for length in (20, 300, 1000):
        x = np.resize(np.array([2**31 - 1, -(2**31), 0], np.int32), (2, length))
        check(x, 1)
        check(x.view(np.uint32), 1, descending=True)
        bits = np.random.default_rng(3).integers(0, 1 << 32, (2, length), np.uint64)
        floats = bits.astype(np.uint32).view(np.float32)  # NaN of both signs, too
        check(np.where(np.isnan(floats), np.float32(np.nan), floats), 1)


def test_one_kernel_of_networks():
    def kernels():
        return sum(key[0] == "kernel" for key in math.sort.kernels)

    for length in (70, 500):
        check(drawn(3, length, dtype=np.float32), 1)
    before = kernels()
    for shape in [(2, 9), (64, 16), (9, 192), (1, 193), (2, 700)]:
        check(drawn(*shape, dtype=np.float32), 1)
    assert kernels() == before


def test_short_rows_do_not_choose_for_longer_ones():
    """Rows of 2 and of 100 elements share a definition, but no algorithm."""

    def kernels():
        return {key[2:-1] for key in math.sort.kernels if key[0] == "kernel"}

    math.sort.forget()
    check(drawn(3, 2, dtype=np.int32), 1)
    first = kernels()
    check(drawn(3, 100, dtype=np.int32), 1)
    assert {key[-1] for key in kernels() - first} == {"network"}


def test_one_kernel_for_all_sizes():
    def kernels():
        return sum(key[0] == "kernel" for key in math.argsort.kernels)

    for length in (70, 192, 500):  # each way to sort that a processor may prefer
        check(drawn(3, length), 1)
    before = kernels()
    for shape in [(1, 1), (64, 16), (9, 192), (1, 193), (5, 70_000)]:
        check(drawn(*shape), 1)
    assert kernels() == before


@pytest.mark.parametrize(
    ("op", "given", "error", "match"),
    [
        (math.sort, (drawn(2, 3), 2), ArgumentError, "axis 2 does not exist"),
        (math.sort, (drawn(2, 3), None), ArgumentError, "axis is a whole number"),
        (math.sort_grad, (drawn(2), drawn(3)), ShapeError, r"dy has shape \(2,\)"),
        (math.sort_grad, (np.arange(3), np.arange(3)), DTypeError, "not i64"),
    ],
)
def test_bad_calls(op, given, error, match):
    with pytest.raises(error, match=match):
        op(*given)
