"""erf and its inverse."""

from __future__ import annotations

import math
from typing import Final

from tensorlang.ir.math.exponential import EXP2
from tensorlang.ir.math.logarithm import log1p
from tensorlang.ir.math.scope import Scope
from tensorlang.ir.natives import copysign, sqrt
from tensorlang.ir.nodes import Compare, Expr, Unary

_SMALL: Final = {  # erf(x)/x - 1 over x^2, |x| <= 1/2
    "f32": (
        0.00471973791718483,
        -0.026758072897791862,
        0.11282836645841599,
        -0.37612608075141907,
        0.12837916612625122,
    ),
    "f64": (
        1.4726244430391079e-06,
        -1.4845891283480475e-05,
        0.00012053337003163482,
        -0.0008548297797143058,
        0.0052239773735729255,
        -0.026866170632924367,
        0.11283791670925447,
        -0.3761263890318347,
        0.12837916709551256,
    ),
}
# (log2(erfc(t)) - c) / t + 2, 1/2 <= t <= 4 (f32), 6 (f64)
_LARGE: Final = {
    "f32": (
        0.00032134397770278156,
        -0.004746574442833662,
        0.033393628895282745,
        -0.1525038629770279,
        -0.9165523052215576,
        0.3716215193271637,
    ),
    "f64": (
        -1.8361868387799472e-14,
        9.004720087436105e-13,
        -2.0726054665874915e-11,
        2.97488873707043e-10,
        -2.981660361136597e-09,
        2.2112078134544085e-08,
        -1.251150930637423e-07,
        5.462222595292572e-07,
        -1.8193150197401148e-06,
        4.367774228931085e-06,
        -5.973853588224716e-06,
        -3.7899783515263802e-06,
        4.3096543806786936e-05,
        -9.44994073706054e-05,
        -3.5358030563415964e-05,
        0.0008496755772182876,
        -0.0024460717427397943,
        0.0003013426370528299,
        0.027596662675954814,
        -0.1482695570014559,
        -0.9184481843075305,
        0.3720929711315293,
    ),
}
_AT_ZERO: Final = {"f32": 13 * 2.0**-18, "f64": 0.0}  # c: few bits, sums are exact
# Giles, "Approximating the erfinv function" (2010), in single precision: for w < 5 over
# w - 2.5, else over sqrt(w) - 3. The constants are those of XLA, and so of JAX.
_CENTRAL_F32: Final = (
    2.81022636e-08,
    3.43273939e-07,
    -3.5233877e-06,
    -4.39150654e-06,
    2.1858087e-04,
    -1.25372503e-03,
    -4.17768164e-03,
    0.246640727,
    1.50140941,
)
_TAIL_F32: Final = (
    -2.00214257e-04,
    1.00950558e-04,
    1.34934322e-03,
    -3.67342844e-03,
    5.73950773e-03,
    -7.6224613e-03,
    9.43887047e-03,
    1.00167406,
    2.83297682,
)
# in double precision: w < 6.25 over w - 3.125, w < 16 over sqrt(w) - 3.25, else - 5
_CENTRAL_F64: Final = (
    -3.6444120640178196996e-21,
    -1.685059138182016589e-19,
    1.2858480715256400167e-18,
    1.115787767802518096e-17,
    -1.333171662854620906e-16,
    2.0972767875968561637e-17,
    6.6376381343583238325e-15,
    -4.0545662729752068639e-14,
    -8.1519341976054721522e-14,
    2.6335093153082322977e-12,
    -1.2975133253453532498e-11,
    -5.4154120542946279317e-11,
    1.051212273321532285e-09,
    -4.1126339803469836976e-09,
    -2.9070369957882005086e-08,
    4.2347877827932403518e-07,
    -1.3654692000834678645e-06,
    -1.3882523362786468719e-05,
    0.0001867342080340571352,
    -0.00074070253416626697512,
    -0.0060336708714301490533,
    0.24015818242558961693,
    1.6536545626831027356,
)
_MIDDLE_F64: Final = (
    2.2137376921775787049e-09,
    9.0756561938885390979e-08,
    -2.7517406297064545428e-07,
    1.8239629214389227755e-08,
    1.5027403968909827627e-06,
    -4.013867526981545969e-06,
    2.9234449089955446044e-06,
    1.2475304481671778723e-05,
    -4.7318229009055733981e-05,
    6.8284851459573175448e-05,
    2.4031110387097893999e-05,
    -0.0003550375203628474796,
    0.00095328937973738049703,
    -0.0016882755560235047313,
    0.0024914420961078508066,
    -0.0037512085075692412107,
    0.005370914553590063617,
    1.0052589676941592334,
    3.0838856104922207635,
)
_TAIL_F64: Final = (
    -2.7109920616438573243e-11,
    -2.5556418169965252055e-10,
    1.5076572693500548083e-09,
    -3.7894654401267369937e-09,
    7.6157012080783393804e-09,
    -1.4960026627149240478e-08,
    2.9147953450901080826e-08,
    -6.7711997758452339498e-08,
    2.2900482228026654717e-07,
    -9.9298272942317002539e-07,
    4.5260625972231537039e-06,
    -1.9681778105531670567e-05,
    7.5995277030017761139e-05,
    -0.00021503011930044477347,
    -0.00013871931833623122026,
    1.0103004648645343977,
    4.8499064014085844221,
)


def erf(s: Scope, x: Expr) -> Expr:
    """`x + x P(x^2)` up to 1/2, `1 - 2^(c - 2t + t Q(t))` for `t = |x|` above."""
    size = s.let(Unary("abs", x), "size")
    square = s.let(x * x, "square")
    small = s.fma(s.horner(square, _SMALL[s.dtype.name]), x, x, "near")
    most = 4.0 if s.single else 6.0  # from here on, erf rounds to 1
    t = s.select(size > most, most, size, "capped")
    q = s.horner(t, _LARGE[s.dtype.name])
    line = s.let(_AT_ZERO[s.dtype.name] - (t + t), "line")
    whole, k = s.nearest(s.fma(q, t, line, "log2"), "exponent")
    p = s.horner(s.fma(q, t, line - whole, "rest"), EXP2[s.dtype.name])
    erfc = s.float(s.bits(p) + k * 2**s.mantissa, "tail")  # p 2^k: no exponent is small
    return s.select(size > 0.5, copysign(1.0 - erfc, x), small)


def erfinv(s: Scope, x: Expr) -> Expr:
    """The inverse of erf; infinite at 1 and -1, NaN beyond."""
    w = s.let(-log1p(s, s.let(-x * x)))
    p = _giles_f32(s, w) if s.single else _giles_f64(s, w)
    edge = Compare("eq", Unary("abs", x), s.const(1.0))
    return s.select(edge, x * math.inf, p * x)


def _giles_f32(s: Scope, w: Expr) -> Expr:
    central = s.let(w < 5.0)
    z = s.select(central, w - 2.5, sqrt(w) - 3.0)
    total: Expr = s.select(central, _CENTRAL_F32[0], _TAIL_F32[0])
    for near, far in zip(_CENTRAL_F32[1:], _TAIL_F32[1:], strict=True):
        total = s.fma(total, z, s.select(central, near, far))
    return total


def _giles_f64(s: Scope, w: Expr) -> Expr:
    root = s.let(sqrt(w))
    central = s.horner(s.let(w - 3.125), _CENTRAL_F64)
    middle = s.horner(s.let(root - 3.25), _MIDDLE_F64)
    tail = s.horner(s.let(root - 5.0), _TAIL_F64)
    return s.select(w < 6.25, central, s.select(w < 16.0, middle, tail))
