"""Expected outputs: exact bits, or bounds.

Bounds come from the reference in double precision, and widen where the reference in its
own dtypes is less accurate: cancellation, underflow, overflow. Where only the latter
overflows, a result may be infinite, NaN, or between the correct value and 0 (as after
division by an infinity).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import ml_dtypes
import numpy as np

from tensorlang.frozen import frozen
from tensorlang.runtime.arrays.host_arrays import Array

OWN_ERRORS: Final = 4.0  # permitted error as a multiple of the reference's own
# relative to the largest number: such sums may overflow in another order
_NEAR_OVERFLOW: Final = 2.0**-20
# times the typical magnitude; larger values only get their own error
_USUAL: Final = 64.0
_TYPICAL: Final = 16.0  # times the median; larger values are excluded from the mean


@frozen
class Expected:
    """The expected values of an output."""

    value: Array  # expected value, in the output's dtype
    low: Array | None = None  # lower bound; None for exact bits
    high: Array | None = None  # upper bound; None for exact bits
    nan: Array | None = None  # where NaN is permitted
    loose: Array | None = None  # where infinities and NaN are permitted
    zeros: bool = False  # whether 0 and -0 are equal, for exact bits

    def wrong(self, got: Array) -> Array | None:
        """Mask of wrong elements; None if there are none."""
        if self.low is None:
            wrong = bits(got) != bits(self.value)
            if wrong.any() and got.dtype.kind not in "iub":
                wrong = differing(got, self.value)
                if self.zeros:
                    wrong &= ~((got == 0) & (self.value == 0))
        else:
            with np.errstate(invalid="ignore"):
                wrong = ~((got >= self.low) & (got <= self.high))
            if wrong.any() and self.nan is not None and self.loose is not None:
                wrong &= ~(self.nan & np.isnan(got))
                wrong &= ~self.loose | np.isfinite(got)
        return wrong if wrong.any() else None

    def error(self, got: Array) -> float:
        """The largest error of a correct output, relative to the permitted error."""
        if self.low is None or self.high is None or self.nan is None:
            return 0.0
        wide: Any = np.float64 if got.dtype.itemsize == 8 else np.float32
        low, high, found = (np.asarray(a, wide) for a in (self.low, self.high, got))
        with np.errstate(all="ignore"):
            off = np.abs(found - (low + high) / 2) / ((high - low) / 2)
        return float(np.minimum(off[np.isfinite(off)], 1.0).max(initial=0.0))


def within(
    wide: Array,
    narrow: Array | None,
    dtype: np.dtype,
    tolerance: float,
    *,
    spreads: bool = False,
    moved: Sequence[Array] = (),
) -> Expected:
    """Bounds of an output.

    Args:
        wide: The reference's result in double precision.
        narrow: Its result in its own dtypes, if known.
        dtype: The output's dtype.
        tolerance: Permitted error, relative to the value or, if larger, to the typical
            magnitude, as left by cancellation.
        spreads: Whether an infinity or NaN may propagate to other results.
        moved: Results for inputs that were moved by rounding errors, which bound those
            of large terms that cancel.
    """
    with np.errstate(all="ignore"):
        value = wide.astype(dtype)
        if dtype.kind in "iub":
            other = value if narrow is None else narrow
            return Expected(value, np.minimum(value, other), np.maximum(value, other))
        most = float(ml_dtypes.finfo(dtype).max)
        rounded = np.where(np.abs(wide) > most, np.copysign(np.inf, wide), wide)
        other = rounded if narrow is None else narrow.astype(np.float64)
        low, high, lost = _around(wide, other, tolerance, moved)
    known = np.isfinite(wide)
    agree = np.isnan(rounded) == np.isnan(other)
    agree &= np.isfinite(rounded) == np.isfinite(other)
    agree &= (rounded == other) | ~np.isinf(rounded)
    off = known & (lost | ~agree)  # between the correct result and 0
    rest = np.where(off & np.isfinite(other), other, 0.0)
    slack = tolerance * np.where(rest, np.maximum(np.abs(rest), _typical(wide)), 0.0)
    low = np.where(off, np.minimum(low, rest - slack), low)
    high = np.where(off, np.maximum(high, rest + slack), high)
    loose = known & (off | (np.abs(wide) > _NEAR_OVERFLOW * most))
    free = ~(agree | known)
    if spreads:  # an expected infinity or NaN only has to be non-finite
        loose, low = np.ones_like(known), np.where(np.isfinite(rounded), low, np.nan)
    low, high = np.where(free, -np.inf, low), np.where(free, np.inf, high)
    ends = _outward(low, dtype, -np.inf), _outward(high, dtype, np.inf)
    return Expected(value, *ends, free | np.isnan(rounded), loose)


def has_outliers(wide: Array) -> bool:
    """Whether only its own error is permitted for a result: one too large or alone."""
    return bool(wide.dtype.kind == "f" and _outliers(wide, _typical(wide)).any())


def _outliers(wide: Array, typical: float) -> Array:
    large = (wide.size == 1) | (np.abs(wide) > _USUAL * typical)
    outliers: Array = large & np.isfinite(wide)
    return outliers


def _around(
    wide: Array, other: Array, tolerance: float, moved: Sequence[Array]
) -> tuple[Array, Array, Array]:
    """Bounds around the correct results, and where the reference itself overflows.

    A kernel's error may be a small multiple of the reference's own.
    """
    known = np.isfinite(wide)
    sizes, typical = np.abs(wide), _typical(wide)
    own = np.where(known & np.isfinite(other), np.abs(other - wide), 0.0)
    lost = (own > np.maximum(sizes, np.abs(other)) / 2) & (own > typical)
    outliers = _outliers(wide, typical)
    usual = own[~lost & ~outliers].max(initial=0.0)
    for each in moved:
        off = np.where(outliers & np.isfinite(each), np.abs(each - wide), 0.0)
        own = np.maximum(own, off)
    allowed = tolerance * np.maximum(sizes, typical)
    allowed += OWN_ERRORS * np.maximum(np.where(lost, 0.0, own), usual)
    allowed = np.where(known, allowed, 0.0)
    return wide - allowed, wide + allowed, lost


def _outward(wide: Array, dtype: np.dtype, side: float) -> Array:
    """Bounds rounded outward to an output's dtype."""
    with np.errstate(all="ignore"):
        made = wide.astype(dtype)
        back = made.astype(np.float64)
        inside = back > wide if side < 0 else back < wide
        return np.where(inside, np.nextafter(made, np.array(side, dtype)), made)


def _typical(wide: Array) -> float:
    """The mean magnitude, excluding outliers."""
    sizes = np.abs(wide[np.isfinite(wide)])
    some = sizes[sizes > 0]
    if not some.size:
        return 0.0
    return float(np.minimum(sizes, _TYPICAL * np.median(some)).mean())


def differing(got: Array, expected: Array) -> Array:
    """Mask of elements whose bits differ, for arrays of one dtype.

    NaNs are equal: their bits differ between devices (0x7fffffff on CUDA, sign bit set
    on x86).
    """
    wrong: Array = bits(got) != bits(expected)
    if got.dtype.kind not in "iub":
        wrong &= ~(np.isnan(got) & np.isnan(expected))
    return wrong


def bits(array: Array) -> Array:
    """The bits as integers, so that NaN equals itself and -0 differs from 0."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
