"""Sums and products rounded once, by arithmetic whose errors are known.

A sum's error is a float (Knuth's TwoSum); a product's, too (Dekker, Veltkamp). A number
rounded to odd (the last bit is set where anything was lost) may be rounded again to
fewer than its bits less two as if it had not been rounded before (Boldo, Melquiond,
"Emulation of FMA and correctly rounded sums", 2008).
"""

from __future__ import annotations

import ctypes
import ctypes.util

import numpy as np

_LIBM = ctypes.CDLL(ctypes.util.find_library("m"))
_LIBM.fma.restype = ctypes.c_double
_LIBM.fma.argtypes = [ctypes.c_double] * 3
_ONE_BY_ONE = np.frompyfunc(_LIBM.fma, 3, 1)
_SPLITTER = 2.0**27 + 1
_SAFE = 2.0**400  # between this and its inverse no step goes out of range


def two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The sum of f64, and what it lacks."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def odd_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The sum of f64, rounded to odd."""
    total, rest = two_sum(a, b)
    lost = (rest != 0) & np.isfinite(total) & np.isfinite(rest)
    bits = total.view(np.int64)
    bits = bits - (lost & ((total < 0) != (rest < 0)))
    return np.where(lost, bits | 1, bits).view(np.float64)


def odd_product_sum(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c of f32 or less, as f64 rounded to odd: the product is exact there."""
    wide = np.float64
    return odd_sum(
        *np.broadcast_arrays(a.astype(wide) * b.astype(wide), c.astype(wide))
    )


def fma_single(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c of f32, rounded once to the nearest even."""
    return odd_product_sum(a, b, c).astype(np.float32)


def fma_double(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c of f64, rounded once to the nearest even."""
    a, b, c = np.broadcast_arrays(a, b, c)
    product, rest = _two_product(a, b)
    low, lower = two_sum(c, rest)
    top, middle = two_sum(product, low)
    made = top + odd_sum(middle, lower)
    made = np.where(made == 0, a * b + c, made)  # exact there, and of the right sign
    plain = _is_safe(a) & _is_safe(b) & _is_safe(c)
    if not plain.all():
        hard = [x[~plain] for x in (a, b, c)]
        made[~plain] = _ONE_BY_ONE(*hard).astype(np.float64)
    return made


def _is_safe(a: np.ndarray) -> np.ndarray:
    size = np.abs(a)
    return (size == 0) | ((size < _SAFE) & (size > 1 / _SAFE))


def _two_product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    product = a * b
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    return product, a2 * b2 - (((product - a1 * b1) - a2 * b1) - a1 * b2)


def _halves(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    big = a * _SPLITTER
    upper = big - (big - a)
    return upper, a - upper


def odd_single(x: np.ndarray) -> np.ndarray:
    """f64 as f32, rounded to odd."""
    near = x.astype(np.float32)
    back = near.astype(np.float64)
    lost = (back != x) & ~np.isnan(x)
    bits = near.view(np.int32) - (lost & (np.abs(back) > np.abs(x)))
    return np.where(lost, bits | 1, bits).astype(np.int32).view(np.float32)


def brain_bits(x: np.ndarray) -> np.ndarray:
    """f32 (exact, or rounded to odd) as the bits of bf16, to the nearest even."""
    bits = x.view(np.uint32)
    one, half = np.uint32(1), np.uint32(0x7FFF)
    made = (bits + half + (bits >> np.uint32(16) & one)) >> np.uint32(16)
    return np.where(np.isnan(x), np.uint32(0x7FFF), made).astype(np.uint16)


def brain_values(bits: np.ndarray) -> np.ndarray:
    """The bits of bf16 as f32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
