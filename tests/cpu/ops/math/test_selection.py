"""`where` and `clip` with their gradients."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.errors import ArgumentError, DTypeError
from tensorlang.ir.dtypes import DType
from tensorlang.ops import math


def drawn(shape, dtype="f32", seed=0):
    x = np.random.default_rng(seed).standard_normal(shape) * 3
    return np.asarray(x, DType(dtype).numpy)


COND = np.random.default_rng(5).integers(0, 2, (7, 40)).astype(bool)


# ------------------------------------------------------------------------ where


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16", "i8", "u64", "bool"])
def test_where(dtype):
    a, b = drawn((7, 40), dtype), drawn((40,), dtype, seed=1)
    found = math.where(COND, a, b)
    assert found.dtype == a.dtype
    np.testing.assert_array_equal(found, np.where(COND, a, b))
    np.testing.assert_array_equal(
        math.where(COND[:, :1], b, a), np.where(COND[:, :1], b, a)
    )


def test_where_with_numbers():
    a = drawn((7, 40))
    np.testing.assert_array_equal(math.where(COND, a, 0.5), np.where(COND, a, 0.5))
    np.testing.assert_array_equal(math.where(COND, -2, a), np.where(COND, -2, a))
    whole = a.astype(np.int16)
    np.testing.assert_array_equal(
        math.where(COND, whole, -7), np.where(COND, whole, np.int16(-7))
    )


def test_where_keeps_what_is_not_chosen_out():
    a = np.array([1, np.nan, np.inf, -0.0], np.float32)
    cond = np.array([True, False, False, True])
    found = math.where(cond, a, np.zeros_like(a))
    assert found.tolist() == [1, 0, 0, 0]
    assert np.signbit(found[3])


def test_where_gradients():
    dy, a, b = drawn((7, 40)), drawn((7, 40), seed=1), drawn((40,), seed=2)
    da, db = math.where_grad(dy, COND, a, b)
    np.testing.assert_array_equal(da, np.where(COND, dy, 0))
    np.testing.assert_allclose(db, np.where(COND, 0, dy).sum(0), rtol=1e-5, atol=1e-5)
    only = math.where_grad(dy, COND, 1.0, b)
    np.testing.assert_array_equal(only, db)


def test_where_refuses():
    a = drawn((7, 40))
    with pytest.raises(DTypeError, match="an array of bool, not of f32"):
        math.where(a, a, a)
    with pytest.raises(DTypeError, match="have one element type, not u64, i8"):
        math.where(COND, a.astype(np.uint64), a.astype(np.int8))
    with pytest.raises(ArgumentError, match="one of a and b has to be an array"):
        math.where(COND, 1.0, 2.0)


# ------------------------------------------------------------------------- clip


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16", "i32", "u8"])
def test_clip(dtype):
    x = np.abs(drawn((33, 9), dtype)) if dtype == "u8" else drawn((33, 9), dtype)
    for low, high in ((1, 2), (None, 2), (1, None), (3, 1)):
        found = math.clip(x, low, high)
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found, np.clip(x, low, high))


def test_clip_by_arrays():
    x, low = drawn((33, 9)), drawn((9,), seed=1) - 1
    high = low + 2
    np.testing.assert_array_equal(math.clip(x, low, high), np.clip(x, low, high))
    np.testing.assert_array_equal(math.clip(x, low, 0.5), np.clip(x, low, 0.5))
    np.testing.assert_array_equal(math.clip(x, low), np.maximum(x, low))


def test_nan_stays_and_nan_bounds_win():
    x = np.array([np.nan, -5, 0, 5, np.inf, -np.inf], np.float32)
    np.testing.assert_array_equal(math.clip(x, -1, 1), np.clip(x, -1, 1))
    assert np.isnan(math.clip(x, float("nan"), 1)).all()
    assert np.isnan(math.clip(x, -1, float("nan"))).all()


def test_all_bounds_share_a_kernel():
    x = drawn((4, 4))
    kernels = {math.clip.kernel(x, *b) for b in ((0, 1), (-3.0, None), (None, 9.5))}
    assert len(kernels) == 1


def test_clip_gradients():
    torch = pytest.importorskip("torch")
    dy, x = drawn((33, 9)), drawn((33, 9), seed=1)
    low, high = drawn((33, 9), seed=2) - 1, drawn((33, 9), seed=3) + 1
    x[0] = low[0]
    x[1] = high[1]
    theirs = [torch.tensor(v, requires_grad=True) for v in (x, low, high)]
    torch.clamp(*theirs).backward(torch.tensor(dy))
    found = math.clip_grad(dy, x, low, high)
    for ours, expected in zip(found, theirs, strict=True):
        np.testing.assert_array_equal(ours, expected.grad)
    value = torch.tensor(x, requires_grad=True)
    torch.clamp(value, -1, 2).backward(torch.tensor(dy))
    np.testing.assert_array_equal(math.clip_grad(dy, x, -1, 2), value.grad)


def test_clip_gradients_of_broadcast_bounds():
    dy, x, low = drawn((33, 9)), drawn((33, 9), seed=1), drawn((9,), seed=2)
    dx, dlow = math.clip_grad(dy, x, low, 5.0)
    inside = (x >= low) & (x <= 5)
    np.testing.assert_array_equal(dx, np.where(inside, dy, 0))
    expected = np.where((x < low) & (low < 5), dy, 0).sum(0)
    np.testing.assert_allclose(dlow, expected, rtol=1e-5, atol=1e-5)


def test_clip_refuses():
    x = drawn((3,))
    with pytest.raises(
        ArgumentError, match="give a lower bound, an upper one, or both"
    ):
        math.clip(x)
    with pytest.raises(DTypeError, match="low is 300; i8 holds -128 to 127"):
        math.clip(np.arange(3, dtype=np.int8), 300, 2)
    with pytest.raises(DTypeError, match=r"takes .*, not bool"):
        math.clip(x > 0, x > 0, x > 0)
