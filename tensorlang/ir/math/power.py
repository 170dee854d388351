"""pow, with C's special cases.

`|a|^b = 2^(b log2 |a|)`. f32 is computed in f64, where log2 needs to be good to 35
bits; f64 needs it to about 65 bits, represented as a sum of two numbers.
"""

from __future__ import annotations

import math
from typing import Final

from tensorlang.ir.math import exponential, logarithm
from tensorlang.ir.math.scope import Scope, widen
from tensorlang.ir.natives import isnan, trunc
from tensorlang.ir.nodes import Cast, Compare, Expr, Unary, Var

_TWO_THIRDS: Final = (0.6666666666666666, 3.700743415417188e-17)
_LOG2E: Final = (1.4426950408889634, 2.0355273740931033e-17)
# (log((1+s)/(1-s)) / s - 2 - 2/3 s^2) / s^4 over s^2
_SERIES: Final = (
    0.11988845775171893,
    0.1167483875857749,
    0.13336316412183027,
    0.15384556897455476,
    0.18181818869921915,
    0.2222222221753971,
    0.28571428571445096,
    0.3999999999999998,
)

# for f32, near minimax: log2(1+f) / f for 1+f in [sqrt(1/2), sqrt(2)], and 2^r for
# |r| <= 1/2, highest power first
_LOG2_F32: Final = (
    0.07737053948135193,
    -0.14283943601778193,
    0.14474841842315372,
    -0.14315643078692225,
    0.15876980197995919,
    -0.1803006042733997,
    0.20617535965162248,
    -0.2404531654649477,
    0.288537293460466,
    -0.3606736748301418,
    0.4808983613956409,
    -0.7213475208687455,
    1.4426950408687051,
)
_EXP2_F32: Final = (
    1.5201919695922994e-05,
    0.00015469291137840124,
    0.0013333922571458264,
    0.009618027253660958,
    0.05550410353437919,
    0.24022651198157977,
    0.6931471807284498,
    0.9999999999616817,
)


def pow(s: Scope, a: Expr, b: Expr) -> Expr:
    """`a` to the power `b`."""
    size = s.let(Unary("abs", a), "size")
    value = _magnitude_f32(s, size, b) if s.single else _magnitude_f64(s, size, b)
    one = s.const(1.0)
    value = s.select(Compare("eq", size, one), 1.0, value)
    whole = s.let(Compare("eq", trunc(b), b))
    half = s.let(b * 0.5)
    odd = s.let(whole & Compare("ne", trunc(half), half))
    signed = s.let(s.bits(a) < 0)
    value = s.select(odd & signed, -value, value)
    below = (a < 0.0) & (size < math.inf) & ~whole
    value = s.select(below | isnan(a) | isnan(b), math.nan, value)
    always = Compare("eq", b, s.const(0.0)) | Compare("eq", a, one)
    return s.select(always, 1.0, value)


def _magnitude_f32(s: Scope, size: Expr, b: Expr) -> Expr:
    wide = widen(s)
    f, k = logarithm.normalised(s, size)
    k = s.select(Compare("eq", size, s.const(0.0)), -math.inf, k)
    k = s.select(Compare("eq", size, s.const(math.inf)), math.inf, k)
    offset = wide.let(Cast(wide.dtype, f))
    log = wide.fma(offset, wide.horner(offset, _LOG2_F32), Cast(wide.dtype, k))
    power = wide.let(log * Cast(wide.dtype, b))
    x = exponential.clamp(wide, power, *exponential.EXP2_RANGE["f32"])
    whole, count = wide.nearest(x, "count")
    p = wide.horner(wide.let(x - whole), _EXP2_F32)
    value = wide.float(wide.bits(p) + (count << wide.mantissa))  # normal in f64
    return Cast(s.dtype, value)


def _magnitude_f64(s: Scope, size: Expr, b: Expr) -> Expr:
    high, low = _log2(s, size)
    product = s.let(b * high)
    rest = s.fma(b, low, s.fma(b, high, -product))
    far = s.let(Unary("abs", product) < 1100.0)
    x = exponential.clamp(s, product, *exponential.EXP2_RANGE["f64"])
    whole, k = s.nearest(x, "exponent")
    r = s.let((x - whole) + s.select(far, rest, 0.0))
    value = exponential.scale(s, s.horner(r, exponential.EXP2["f64"]), k)
    rising = s.let(b > 0.0)
    at_zero = s.select(rising, 0.0, math.inf)
    at_infinity = s.select(rising, math.inf, 0.0)
    value = s.select(Compare("eq", size, s.const(0.0)), at_zero, value)
    return s.select(Compare("eq", size, s.const(math.inf)), at_infinity, value)


def _log2(s: Scope, size: Expr) -> tuple[Var, Var]:
    """log2 of a positive f64 as `high + low`."""
    f, k = logarithm.normalised(s, size)
    ratio = _ratio(s, f)
    square = _times(s, ratio, ratio)
    cubic = _times(s, _times(s, square, ratio), _constants(s, _TWO_THIRDS))
    z, first = square[0], ratio[0]
    series = s.let((first * z) * (z * s.horner(z, _SERIES)))
    twice = s.let(first * 2.0)
    total = s.let(twice + cubic[0])
    rest = s.let(((twice - total) + cubic[0]) + s.fma(ratio[1], 2.0, cubic[1] + series))
    high = s.let(total + rest)
    low = s.let((total - high) + rest)
    log, error = _times(s, (high, low), _constants(s, _LOG2E))
    whole = s.let(k + log)
    return whole, s.let(((k - whole) + log) + error)


def _ratio(s: Scope, f: Expr) -> tuple[Var, Var]:
    """`f / (2 + f)` as a sum of two parts."""
    divisor = s.let(f + 2.0)
    missed = s.let(f - (divisor - 2.0))
    high = s.let(f / divisor)
    left = s.fma(-high, divisor, f)
    return high, s.let(s.fma(-high, missed, left) / divisor)


def _constants(s: Scope, parts: tuple[float, float]) -> tuple[Expr, Expr]:
    return s.const(parts[0]), s.const(parts[1])


def _times(s: Scope, a: tuple[Expr, Expr], b: tuple[Expr, Expr]) -> tuple[Var, Var]:
    """The product of two two-part numbers, in two parts."""
    (a_high, a_low), (b_high, b_low) = a, b
    high = s.let(a_high * b_high)
    error = s.fma(a_high, b_high, -high)
    return high, s.fma(a_high, b_low, s.fma(a_low, b_high, error))
