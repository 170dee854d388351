"""Powers, quotients and remainders of integers: every type, both ends, zeros."""

from __future__ import annotations

import numpy as np
import pytest

from tensorlang.errors import DTypeError
from tensorlang.ir import DType
from tensorlang.ops import math

TYPES = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")


def interesting(dtype):
    """Both ends, small numbers, and some at random."""
    low, high = DType(dtype).limits
    kind = DType(dtype).numpy
    held = {low, low + 1, high - 1, high, high // 2, *range(12)}
    held |= {-n for n in range(12)} if low < 0 else set()
    drawn = np.random.default_rng(0).integers(low, high, 40, kind, endpoint=True)
    return np.concatenate([np.array(sorted(held), kind), drawn])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
def test_division_is_numpys(name, dtype):
    values = interesting(dtype)
    a, b = values[:, None], values
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(a, b)
    found = getattr(math, name)(a, b)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", TYPES)
def test_division_toward_zero(dtype):
    values = interesting(dtype)
    found = math.trunc_divide(values[:, None], values)
    kind, bits = DType(dtype).numpy, DType(dtype).bits
    assert found.dtype == kind

    def quotient(a, b):
        whole = abs(a) // abs(b) if b else 0
        return (whole if (a < 0) == (b < 0) else -whole) % (1 << bits)

    expected = [[quotient(int(a), int(b)) for b in values] for a in values]
    np.testing.assert_array_equal(
        found.view(f"u{kind.itemsize}"), np.array(expected, f"u{kind.itemsize}")
    )


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_division_of_floats_toward_zero(dtype):
    ends = [np.inf, -np.inf, np.nan, 0.0, -0.0]
    x = np.array([7.5, -7.5, 2.0, -0.25, *ends], DType(dtype).numpy)
    found = math.trunc_divide(x[:, None], x)
    assert found.dtype == x.dtype
    with np.errstate(all="ignore"):
        wide = np.trunc(x[:, None].astype(np.float32) / x.astype(np.float32))
    np.testing.assert_array_equal(found.astype(np.float32), wide)
    one = np.ones(3, x.dtype)
    assert not any(each.any() for each in math.trunc_divide_grad(one, one, one + one))


def test_divisors_may_be_numbers():
    x = np.arange(-20, 20, dtype=np.int32)
    np.testing.assert_array_equal(math.floor_divide(x, -7), x // -7)
    np.testing.assert_array_equal(math.remainder(7, x[:20]), 7 % x[:20])


def power(a, b, bits):
    """Of Python's numbers, as PyTorch's types hold it."""
    if b < 0:
        return a ** (b & 1) if a in {1, -1} else 0
    return pow(a, b, 1 << bits)


@pytest.mark.parametrize("dtype", ["i8", "u16", "i32", "u64"])
def test_powers_wrap(dtype):
    values = interesting(dtype)
    kind, bits = DType(dtype).numpy, DType(dtype).bits
    found = math.power(values[:, None], values)
    assert found.dtype == kind
    top = 1 << bits
    expected = [[power(int(a), int(b), bits) % top for b in values] for a in values]
    np.testing.assert_array_equal(
        found.view(f"u{kind.itemsize}"), np.array(expected, f"u{kind.itemsize}")
    )


def test_powers_are_pytorchs():
    torch = pytest.importorskip("torch")
    values = np.arange(-9, 10, dtype=np.int32)
    expected = torch.pow(torch.tensor(values[:, None]), torch.tensor(values)).numpy()
    np.testing.assert_array_equal(math.power(values[:, None], values), expected)


def test_a_square_by_a_number():
    x = np.arange(-5, 6, dtype=np.int32)
    np.testing.assert_array_equal(math.power(x, 2), x * x)


@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
def test_bools_are_refused(name):
    x = np.ones(3, np.bool_)
    with pytest.raises(DTypeError, match="not bool; cast it first"):
        getattr(math, name)(x, x)


def test_a_power_of_arrays_is_no_endless_product():
    exponents = np.arange(64, dtype=np.int64)
    np.testing.assert_array_equal(math.power(2, exponents), np.power(2, exponents))
