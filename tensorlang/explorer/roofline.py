"""The roofline of a kernel, as a plot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from tensorlang.frozen import frozen
from tensorlang.machine.limits import Limits

_WIDTH: Final = 300
_HEIGHT: Final = 160


@frozen
class Roofline:
    """A plot of operations per second by operations per byte, both logarithmic.

    Attributes:
        roof: The points of the limits, in the picture's coordinates.
        point: The call: as fast as measured, or as its limit if it was not.
        across: Decades of the intensity with their places; `up`: those of the rate.
    """

    roof: Sequence[tuple[float, float]]
    point: tuple[float, float]
    across: Sequence[tuple[float, float]]
    up: Sequence[tuple[float, float]]
    width: int = _WIDTH
    height: int = _HEIGHT


def roofline(limits: Limits) -> Roofline | None:
    """The plot of a kernel's limits; None without rates, or without floats."""
    work, tightest = limits.work, limits.tightest
    if work is None or tightest is None or not (work.floats and work.bytes):
        return None
    if len(limits.known) < 2:  # no rate of arithmetic
        return None
    peak, stream = (limit.rate for limit in limits.known)
    ridge = peak / stream
    rate = work.floats / (limits.measured or tightest.seconds)
    low, high = _decades(ridge / 10, work.intensity)
    bottom, top = _decades(peak / 10, peak, rate)

    def at(intensity: float, speed: float) -> tuple[float, float]:
        x = (math.log10(intensity) - low) / (high - low) * _WIDTH
        y = (top - math.log10(speed)) / (top - bottom) * _HEIGHT
        return round(x, 1), round(y, 1)

    start = max(10.0**low, 10.0**bottom / stream)
    roof = [at(start, start * stream), at(ridge, peak), at(10.0**high, peak)]
    across = [(10.0**n, at(10.0**n, peak)[0]) for n in range(low, high + 1)]
    up = [(10.0**n, at(ridge, 10.0**n)[1]) for n in range(bottom, top + 1)]
    return Roofline(roof, at(work.intensity, rate), across, up)


def _decades(*values: float) -> tuple[int, int]:
    """The exponents of the powers of ten around some numbers."""
    logarithms = [math.log10(value) for value in values]
    return math.floor(min(logarithms)), math.floor(max(logarithms)) + 1
