"""log, log1p and log2.

`x = 2^k (1 + f)` with `1 + f` within [sqrt(1/2), sqrt(2)), split by integer arithmetic
on the bits. f32: `log(1+f) = f + f^2 P(f)`; f64: with `s = f / (2+f)`, the odd series
of atanh as in FDLIBM. The result is a sum of a large and a small part.
"""

from __future__ import annotations

import math
from typing import Final

from tensorlang.ir.math.exponential import LN2
from tensorlang.ir.math.scope import Scope
from tensorlang.ir.nodes import Cast, Compare, Expr, Select, Unary, Var, binary

# (log(1+f) - f) / f^2, highest power first
_F32: Final = (
    -0.07634538412094116,
    0.12761594355106354,
    -0.13160179555416107,
    0.14201758801937103,
    -0.1662335842847824,
    0.20001226663589478,
    -0.2500081956386566,
    0.3333333134651184,
    -0.5,
)
# (log((1+s)/(1-s)) / s - 2) / s^2 over s^2, highest power first
_F64: Final = (
    0.1325115611321607,
    0.1325013711377537,
    0.15387089915689356,
    0.1818177568483745,
    0.22222222646552917,
    0.2857142856908753,
    0.4000000000000624,
    0.6666666666666666,
)
_SQRT_HALF: Final = {"f32": 0x3F3504F3, "f64": 0x3FE6A09E667F3BCD}
_LOG2E: Final = {
    "f32": (1.4426950216293335, 1.925963033500e-08),
    "f64": (1.4426950408889634, 2.0355273740931033e-17),
}


def exponent(s: Scope, x: Expr) -> Var:
    """The k for which `x * 2^-k` is within [sqrt(1/2), sqrt(2)), for normal x > 0."""
    return s.let((s.bits(x) - _SQRT_HALF[s.dtype.name]) >> s.mantissa, "k")


def shift_exponent(s: Scope, x: Expr, k: Expr) -> Var:
    """`x * 2^-k`, if both are normal."""
    return s.float(s.bits(x) - (k << s.mantissa))


def normalised(s: Scope, x: Expr) -> tuple[Var, Var]:
    """`(f, k)` with `x = 2^k (1+f)` and k as a float, for any positive finite x."""
    tiny = s.let(x < 2.0 ** (1 - s.bias), "tiny")
    lift = s.mantissa + 1
    x = s.select(tiny, x * 2.0**lift, x)
    k = exponent(s, x)
    count = Cast(s.dtype, k) - Select(tiny, s.const(lift), s.const(0.0))
    return s.let(shift_exponent(s, x, k) - 1.0, "f"), s.let(count, "count")


def small_part(s: Scope, f: Expr) -> Var:
    """`log(1+f) - f`."""
    square = s.let(f * f, "square")
    if s.single:
        return s.let(square * s.horner(f, _F32))
    half = s.let(square * 0.5)
    ratio = s.let(f / (f + 2.0))
    z = s.let(ratio * ratio)
    return s.fma(ratio, s.fma(z, s.horner(z, _F64), half), -half)


def combine(s: Scope, f: Expr, k: Expr) -> Var:
    """`k ln2 + log(1+f)`."""
    high, low = LN2[s.dtype.name]
    rest = s.fma(k, low, small_part(s, f))
    return s.let(s.fma(k, high, f) + rest)


def at_the_edges(s: Scope, x: Expr, pole: float, result: Expr) -> Expr:
    """`result` for x between `pole` and infinity; -inf at `pole`, NaN below, else x."""
    at_pole = s.select(
        Compare("eq", x, s.const(pole)), -math.inf, s.select(x < pole, math.nan, x)
    )
    return s.select((x > pole) & (x < math.inf), result, at_pole)


def log(s: Scope, x: Expr) -> Expr:
    """The natural logarithm."""
    return at_the_edges(s, x, 0.0, combine(s, *normalised(s, x)))


def log1p(s: Scope, x: Expr) -> Expr:
    """`log(1+x)`: k is that of `1+x`, and `f = x 2^-k + (2^-k - 1)` rounds once."""
    k = exponent(s, x + 1.0)
    unit = s.power_of_two(-binary("min", k, s.bias - 1))
    f = s.let(shift_exponent(s, x, k) + (unit - 1.0))
    result = combine(s, f, s.let(Cast(s.dtype, k)))
    tiny = Unary("abs", x) < 2.0 ** -(s.mantissa + 2)  # x itself, and -0, subnormals
    return at_the_edges(s, x, -1.0, s.select(tiny, x, result))


def log2(s: Scope, x: Expr) -> Expr:
    """The logarithm to base 2; exact at powers of two."""
    f, k = normalised(s, x)
    high, low = _LOG2E[s.dtype.name]
    product = s.let(f * high)
    rest = s.fma(f, high, -product)
    rest = s.fma(small_part(s, f), high, s.fma(f, low, rest))
    total = s.let(k + product)
    error = (k - total) + product
    return at_the_edges(s, x, 0.0, s.let(total + (error + rest)))
