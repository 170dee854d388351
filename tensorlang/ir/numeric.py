"""Reference semantics of the native intrinsics, on NumPy arrays of their own types.

Every function takes arrays (or NumPy scalars) of one element type that broadcast
against each other, and returns the element type given by the intrinsic's rule.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any  # of NumPy, or a NumPy scalar: its arithmetic gives either

_SPLITTER = float(2**27 + 1)
_QUIET = {"over": "ignore", "invalid": "ignore", "under": "ignore"}


def fma(a: Array, b: Array, c: Array) -> Array:
    """`a * b + c` with one rounding, to nearest even."""
    a, b, c = np.broadcast_arrays(a, b, c)
    kind = a.dtype
    with np.errstate(**_QUIET):  # type: ignore[arg-type]
        if kind == np.float64:
            return _fma_f64(a, b, c)
        wide = sum_to_odd(a.astype(np.float64) * b.astype(np.float64), c.astype("f8"))
        if kind.itemsize == 2:
            wide = narrow_to_odd(wide)
        return wide.astype(kind)


def sum_to_odd(a: Array, b: Array) -> Array:
    """`a + b` in f64, with inexact sums rounded to odd.

    Rounding to odd keeps the sticky bit, so that a second rounding to a type at least
    two bits narrower gives the same result as a single one (Boldo and Melquiond, 2008).
    """
    total, error = _two_sum(a, b)
    even = (total.view(np.int64) & 1) == 0
    move = even & np.isfinite(total) & (error != 0)
    return np.where(move, np.nextafter(total, np.copysign(np.inf, error)), total)


def narrow_to_odd(wide: Array) -> Array:
    """f64 to f32, rounded to odd."""
    near = wide.astype(np.float32)
    error = wide - near
    even = (near.view(np.int32) & 1) == 0
    move = even & np.isfinite(near) & (error != 0)
    towards = np.copysign(np.float32(np.inf), error.astype(np.float32))
    return np.where(move, np.nextafter(near, towards), near)


def _fma_f64(a: Array, b: Array, c: Array) -> Array:
    """The f64 case: error-free transformations, with exact fractions as a fallback."""
    plain = a * b + c
    result = np.where(np.isfinite(a) & np.isfinite(b) & ~np.isfinite(c), c, plain)
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & (a != 0) & (b != 0)
    product, size = np.abs(a * b), np.abs(c)
    simple = (product < size * 2.0**-60) & (size > 2.0**-900)  # the sum is c
    safe = finite & ~simple
    for part in (a, b, c, product):
        safe &= np.abs(np.frexp(part)[1]) < 400
    result = np.where(safe, _fma_error_free(a, b, c), result)
    rest = finite & ~simple & ~safe
    for at in np.argwhere(rest):
        where = tuple(at)
        result[where] = _fma_exact(a[where], b[where], c[where])
    return result


def _fma_error_free(a: Array, b: Array, c: Array) -> Array:
    """Boldo and Melquiond (2008), figure 4: the tails are summed to odd."""
    high = a * b
    low = _product_error(a, b, high)
    middle, rest = _two_sum(c, low)
    total, tail = _two_sum(high, middle)
    return total + sum_to_odd(rest, tail)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """`a + b` and its rounding error, exactly (Knuth)."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def _product_error(a: Array, b: Array, high: Array) -> Array:
    """`a*b - high` exactly (Dekker 1971), if nothing over- or underflows."""
    a_high, a_low = _split(a)
    b_high, b_low = _split(b)
    return ((a_high * b_high - high) + a_high * b_low + a_low * b_high) + a_low * b_low


def _split(a: Array) -> tuple[Array, Array]:
    big = _SPLITTER * a
    high = big - (big - a)
    return high, a - high


def _fma_exact(a: float, b: float, c: float) -> float:
    """One fma of finite f64 through exact fractions; an overflow is an infinity."""
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def popcount(a: Array) -> Array:
    """The number of one bits."""
    x = _unsigned(a).astype(np.uint64)
    for shift, mask in (
        (1, 0x5555555555555555),
        (2, 0x3333333333333333),
        (4, 0x0F0F0F0F0F0F0F0F),
    ):
        low = np.uint64(mask)
        x = (x & low) + ((x >> np.uint64(shift)) & low)
    with np.errstate(over="ignore"):
        x = x * np.uint64(0x0101010101010101)
    return (x >> np.uint64(56)).astype(a.dtype)


def clz(a: Array) -> Array:
    """The number of leading zero bits; the width for 0."""
    x = _unsigned(a).astype(np.uint64)
    for shift in (1, 2, 4, 8, 16, 32):
        x = x | (x >> np.uint64(shift))
    width = a.dtype.type(a.dtype.itemsize * 8)
    return (width - popcount(x).astype(a.dtype)).astype(a.dtype)


def _unsigned(a: Array) -> Array:
    a = np.asarray(a)
    return a.view(f"u{a.dtype.itemsize}")


def mulhi(a: Array, b: Array) -> Array:
    """The upper half of the double-width product of two u32 or u64."""
    if a.dtype == np.uint32:
        wide = a.astype(np.uint64) * b.astype(np.uint64)
        return (wide >> np.uint64(32)).astype(np.uint32)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a_high, a_low, b_high, b_low = a >> half, a & low, b >> half, b & low
    cross = a_high * b_low + ((a_low * b_low) >> half)
    other = a_low * b_high + (cross & low)
    return a_high * b_high + (cross >> half) + (other >> half)


def rotl(a: Array, amount: Array) -> Array:
    """The bits of unsigned `a` rotated left by `amount` modulo the width."""
    width = a.dtype.type(a.dtype.itemsize * 8)
    turn = amount % width
    return (a << turn) | (a >> ((width - turn) % width))
