"""Folds of axes against NumPy in float64: shapes, types, edges, threads."""

from __future__ import annotations

import dataclasses
import warnings

import ml_dtypes
import numpy as np
import pytest

from tensorlang import targets
from tensorlang.errors import ArgumentError, DTypeError, ShapeError
from tensorlang.ops import math

FLOATS = ["sum", "prod", "mean", "max", "min", "var", "logsumexp"]
NAMES = [*FLOATS, "argmax", "argmin", "any", "all"]
# canonical forms: short and long rows, columns, both, one row
SHAPES = [
    ((5, 7), 1),
    ((5, 100), -1),
    ((70_001,), None),
    ((3, 40_000), 1),
    ((6, 33), 0),
    ((1100, 20), 0),
    ((2, 5, 18), 1),
    ((2, 1100, 10), 1),
]


def reference(name, x, axis=None, **given):
    if name == "logsumexp":
        top = np.max(x, axis=axis, keepdims=True)
        top = np.where(np.isinf(top), 0, top)
        total = np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)) + top
        return np.squeeze(total, axis=axis)
    return getattr(np, name)(x, axis=axis, **given)


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def check(name, x, axis, tolerance, **given):
    got = getattr(math, name)(x, axis, **given)
    wide = x.astype(np.float64) if x.dtype.kind not in "iub" else x
    wanted = np.asarray(reference(name, wide, axis, **given))
    assert got.shape == wanted.shape
    np.testing.assert_allclose(
        got.astype(np.float64),
        wanted.astype(np.float64),
        rtol=tolerance,
        atol=tolerance * max(np.abs(wanted.astype(np.float64)).max(initial=0), 1),
    )


@pytest.mark.parametrize("name", NAMES)
def test_forms(name):
    for shape, axis in SHAPES:
        x = drawn(*shape)
        x = x * 0.01 + 1 if name == "prod" else x
        check(name, x, axis, 1e-10)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(np.float32, 1e-5), (np.float16, 2e-3), (ml_dtypes.bfloat16, 1e-2)],
)
def test_types_of_floats(name, dtype, tolerance):
    x = (drawn(3, 100) * 0.05 + 1).astype(dtype)
    check(name, x, 1, tolerance)
    kind = {"argmax": np.int64, "argmin": np.int64, "any": bool, "all": bool}
    assert getattr(math, name)(x, 1).dtype == kind.get(name, dtype)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "argmax", "any"])
def test_integers_and_truth(name):
    for dtype in (np.int8, np.uint8, np.int32, np.uint64):
        x = np.random.default_rng(1).integers(0, 100, (4, 90)).astype(dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = reference(name, x, 1)
        got = getattr(math, name)(x, 1)
        np.testing.assert_array_equal(got, wanted)
        assert got.dtype == wanted.dtype
    truth = np.array([[True, False, False], [False] * 3])
    if name in ("sum", "any", "max", "min"):
        np.testing.assert_array_equal(
            getattr(math, name)(truth, 1), reference(name, truth, 1)
        )


@pytest.mark.parametrize("name", ["sum", "max", "var"])
def test_axes(name):
    x = drawn(2, 3, 4, 5)
    for axis in [(1, 3), (0, 1), (-1, 0), (2,), (), (0, 1, 2, 3), None]:
        for keepdims in (False, True):
            got = getattr(math, name)(x, axis, keepdims=keepdims)
            wanted = reference(name, x, axis, keepdims=keepdims)
            np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)
            assert got.shape == np.shape(wanted)
    check(name, drawn(3, 1, 4), 1, 1e-12)
    check(name, x.transpose(3, 1, 0, 2)[::2], (0, 2), 1e-12)
    check(name, np.asarray(3.5), None, 1e-12)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sum", 0.0),
        ("prod", 1.0),
        ("mean", np.nan),
        ("var", np.nan),
        ("any", False),
        ("all", True),
        ("logsumexp", -np.inf),
    ],
)
def test_of_nothing(name, value):
    for shape, axis in [((0,), None), ((3, 0), 1), ((0, 4), 0), ((2, 0, 5), 1)]:
        got = getattr(math, name)(np.zeros(shape, np.float32), axis)
        assert got.shape == np.zeros(shape).sum(axis).shape
        np.testing.assert_array_equal(got, value)
    assert getattr(math, name)(np.zeros((0, 3), np.float32), 1).shape == (0,)


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_there_is_nothing_to_choose_from(name):
    with pytest.raises(ShapeError, match=r"shape \(3, 0\) has nothing to choose"):
        getattr(math, name)(np.zeros((3, 0), np.float32), 1)
    assert getattr(math, name)(np.zeros((0, 3), np.float32), 1).shape == (0,)


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin", "logsumexp"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_nan_infinities_and_ties(name, dtype):
    x = np.tile(drawn(1, 90), (7, 1)).astype(dtype)
    x[0, [40, 60]] = np.nan
    x[1, 3], x[1, 5] = np.inf, -np.inf
    x[2] = -np.inf
    x[3, 10:] = 0
    x[4] = np.where(np.arange(90) % 2, 0.0, -0.0)
    x[5] = -np.nan
    x[6, 89] = np.nan
    for array, axis in ((x, 1), (np.ascontiguousarray(x.T), 0)):
        got = getattr(math, name)(array, axis)
        with np.errstate(all="ignore"):
            wanted = reference(name, array.astype(np.float64), axis)
        np.testing.assert_allclose(got, wanted, rtol=1e-3)
    if name.startswith("arg"):
        np.testing.assert_array_equal(got, wanted)


def test_huge_values():
    x = np.full((3, 5000), 1e38, np.float32)
    assert np.isinf(math.sum(x, 1)).all()
    np.testing.assert_array_equal(math.max(x, 1), np.float32(1e38))
    far = (drawn(2, 5000) + 1e5).astype(np.float32)
    wanted = far.astype(np.float64).var(1)
    np.testing.assert_allclose(math.var(far, 1), wanted, rtol=1e-3)
    ones = np.full(1 << 18, 0.1, np.float16)
    assert math.mean(ones) == np.float16(0.1)


def test_variance_of_what_was_drawn():
    x = drawn(3, 50)
    for correction in (0, 1, 1.5):
        got = math.var(x, 1, correction)
        wanted = x.var(1) * 50 / (50 - correction)
        np.testing.assert_allclose(got, wanted, rtol=1e-12)
    with np.errstate(all="ignore"):
        assert np.isnan(math.var(x[:, :1], 1, correction=1)).all()


@pytest.mark.parametrize("name", ["sum", "mean", "var", "logsumexp", "argmax"])
def test_the_same_bits_with_any_number_of_threads(name):
    op, usual = getattr(math, name), targets.get(None)
    alone = dataclasses.replace(usual, threads=1)
    for shape, axis in [((100_003,), None), ((64, 300), 1), ((2000, 30), 0)]:
        x = drawn(*shape).astype(np.float32)
        wanted = op(x, axis, target=alone)
        for threads in (2, 3):
            several = dataclasses.replace(usual, threads=threads)
            np.testing.assert_array_equal(op(x, axis, target=several), wanted)


def test_one_kernel_for_all_sizes():
    def kernels():
        return sum(key[0] == "kernel" for key in math.mean.kernels)

    def run(*cases):
        for shape, axis in cases:
            check("mean", drawn(*shape), axis, 1e-10)

    run(((13,), None), ((7, 100), 1), ((7, 100), 0), ((2, 7, 9), 1), ((50_000,), 0))
    before = kernels()
    run(((1,), None), ((1000,), 0), ((9, 65), 1), ((64, 3000), 1), ((3, 10), 0))
    run(((5, 2, 3), 1), ((4, 5, 6, 7), (1, 2)), ((99_999,), None))
    assert kernels() == before


@pytest.mark.parametrize(
    ("name", "given", "error", "match"),
    [
        ("sum", (drawn(2, 3), 2), ArgumentError, "axis 2 does not exist"),
        ("sum", (drawn(2, 3), (0, -2)), ArgumentError, "names an axis twice"),
        ("sum", (drawn(2, 3), True), ArgumentError, "not True"),
        ("sum", (drawn(2, 3), "all"), ArgumentError, "not 'all'"),
        ("argmax", (drawn(2, 3), (0, 1)), ArgumentError, "None or a whole number"),
        ("mean", (np.array("a"),), DTypeError, "is not an element type"),
        ("var", (drawn(3), None, "a"), ArgumentError, "correction is a number"),
    ],
)
def test_bad_calls(name, given, error, match):
    with pytest.raises(error, match=match):
        getattr(math, name)(*given)


def test_out_and_shapes():
    x = drawn(4, 6).astype(np.float32)
    out = np.zeros((4, 1), np.float32)
    assert math.sum(x, 1, keepdims=True, out=out) is out
    np.testing.assert_allclose(out[:, 0], x.sum(1), rtol=1e-5)
    with pytest.raises(ShapeError, match=r"out has shape \(4, 1\), the result \(4,\)"):
        math.sum(x, 1, out=out)
    assert math.sum.shape((8, 3, 5), axis=1) == (8, 5)
    assert math.argmax.shape((8, 3)) == ()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("axis", [0, -1])
def test_a_scalar_has_one_axis(name, axis):
    x = np.asarray(name in {"any", "all"} or np.float32(2.5))
    found, whole = getattr(math, name)(x, axis), getattr(math, name)(x)
    assert np.shape(found) == ()
    np.testing.assert_array_equal(found, whole)
    with pytest.raises(ArgumentError, match="axis 1 does not exist"):
        getattr(math, name)(x, 1)
