"""What an output must be: equal bits, or a number within bounds.

Bounds come from the reference in double precision, and widen where the reference in its
own types is off by more: where numbers cancel, vanish or overflow on the way. Where the
latter overflows and the former does not, a result may be infinite or a NaN, or lie
between the right one and 0, which a division by an infinity leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np

from tensorlang.runtime.arrays import Array

_OWN_ERRORS: Final = 4.0  # how often as far off as the reference itself a kernel may be
# of the largest number; a sum that comes so near to it may overflow in another order
_NEAR_OVERFLOW: Final = 2.0**-20
_USUAL: Final = 64.0  # times the typical size; the errors of what is larger are its own
_TYPICAL: Final = 16.0  # times the median; what is larger says nothing of the others


@dataclass(frozen=True, slots=True)
class Expected:
    """An output as it must be.

    Attributes:
        value: The number that is wanted, of the output's type.
        low: The least that it may be; None where equal bits are asked for.
        high: The largest that it may be.
        nan: Where it may be a NaN.
        loose: Where it may be infinite or a NaN.
        zeros: Whether zeros of either sign are equal, where bits are asked for.
    """

    value: Array
    low: Array | None = None
    high: Array | None = None
    nan: Array | None = None
    loose: Array | None = None
    zeros: bool = False

    def wrong(self, got: Array) -> Array | None:
        """Where an output is wrong; None where it is nowhere."""
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
        """The largest error of a right output, over what is allowed there."""
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
    spreads: bool = False,
) -> Expected:
    """Bounds for an output.

    Args:
        wide: What the reference gives in double precision.
        narrow: What it gives in its own types, where that is known.
        dtype: The output's type.
        tolerance: The relative error that is allowed, of a number itself or of a
            typical one where that is larger: so much cancellation leaves.
        spreads: Whether an infinity or a NaN may spread to other results.
    """
    with np.errstate(all="ignore"):
        value = wide.astype(dtype)
        if dtype.kind in "iub":
            other = value if narrow is None else narrow
            return Expected(value, np.minimum(value, other), np.maximum(value, other))
        most = float(ml_dtypes.finfo(dtype).max)
        rounded = np.where(np.abs(wide) > most, np.copysign(np.inf, wide), wide)
        other = rounded if narrow is None else narrow.astype(np.float64)
        low, high, lost = _around(wide, other, tolerance)
    known = np.isfinite(wide)
    agree = np.isnan(rounded) == np.isnan(other)
    agree &= np.isfinite(rounded) == np.isfinite(other)
    agree &= (rounded == other) | ~np.isinf(rounded)
    off = known & (lost | ~agree)  # from the right result to what is left of it
    rest = np.where(off & np.isfinite(other), other, 0.0)
    slack = tolerance * np.where(rest, np.maximum(np.abs(rest), _typical(wide)), 0.0)
    low = np.where(off, np.minimum(low, rest - slack), low)
    high = np.where(off, np.maximum(high, rest + slack), high)
    loose = known & (off | (np.abs(wide) > _NEAR_OVERFLOW * most))
    free = ~(agree | known)
    if spreads:  # what is to be infinite must not be finite, and that is all
        loose, low = np.ones_like(known), np.where(np.isfinite(rounded), low, np.nan)
    low, high = np.where(free, -np.inf, low), np.where(free, np.inf, high)
    ends = _outward(low, dtype, -np.inf), _outward(high, dtype, np.inf)
    return Expected(value, *ends, free | np.isnan(rounded), loose)


def _around(wide: Array, other: Array, tolerance: float) -> tuple[Array, Array, Array]:
    """Bounds around the right results, and where the reference itself lost them.

    As far off as it is itself, a few times over, any kernel may be.
    """
    known = np.isfinite(wide)
    sizes, typical = np.abs(wide), _typical(wide)
    own = np.where(known & np.isfinite(other), np.abs(other - wide), 0.0)
    lost = (own > np.maximum(sizes, np.abs(other)) / 2) & (own > typical)
    usual = own[~lost & (sizes <= _USUAL * typical)].max(initial=0.0)
    allowed = tolerance * np.maximum(sizes, typical)
    allowed += _OWN_ERRORS * np.maximum(np.where(lost, 0.0, own), usual)
    allowed = np.where(known, allowed, 0.0)
    return wide - allowed, wide + allowed, lost


def _outward(wide: Array, dtype: np.dtype, side: float) -> Array:
    """Bounds in an output's type, none of them nearer than they were."""
    with np.errstate(all="ignore"):
        made = wide.astype(dtype)
        back = made.astype(np.float64)
        inside = back > wide if side < 0 else back < wide
        return np.where(inside, np.nextafter(made, np.array(side, dtype)), made)


def _typical(wide: Array) -> float:
    """The mean size of numbers, leaving out what a few huge ones add to it."""
    sizes = np.abs(wide[np.isfinite(wide)])
    some = sizes[sizes > 0]
    if not some.size:
        return 0.0
    return float(np.minimum(sizes, _TYPICAL * np.median(some)).mean())


def differing(got: Array, expected: Array) -> Array:
    """Where the bits of arrays of one type differ: bool, of their shape.

    Which NaN an operation gives is each device's own (CUDA's is 0x7fffffff, x86's has
    its sign set), so one is as good as another.
    """
    wrong: Array = bits(got) != bits(expected)
    if got.dtype.kind not in "iub":
        wrong &= ~(np.isnan(got) & np.isnan(expected))
    return wrong


def bits(array: Array) -> Array:
    """The array's bytes as integers, so that NaN equals itself and -0 is not 0."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
