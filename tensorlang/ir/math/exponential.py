"""exp, exp2, expm1, and functions based on them: sigmoid and tanh.

`x = k ln2 + r` with integral k and |r| <= ln2 / 2 (Cody and Waite's two-part ln2); a
minimax polynomial (Remez) of exp on that interval; and an exact scaling by 2^k in two
steps, so that subnormal results round once and overflow gives infinity.
"""

from __future__ import annotations

import math
from typing import Final

from tensorlang.ir.math.scope import Scope
from tensorlang.ir.natives import copysign
from tensorlang.ir.nodes import Expr, Unary, Var

# ln2 = high + low, with high short enough for k * high to be exact
LN2: Final = {
    "f32": (0.6931457519531250, 1.42860677e-06),
    "f64": (6.93147180369123816490e-01, 1.90821492927058770002e-10),
}
# (exp(r) - 1 - r) / r^2, relative to exp(r); then 1 and 1
_EXP: Final = {
    "f32": (
        0.0013814271660521626,
        0.008368851616978645,
        0.04166840389370918,
        0.1666651964187622,
        0.4999999403953552,
        1.0,
        1.0,
    ),
    "f64": (
        2.4999806857680016e-08,
        2.7630523566618775e-07,
        2.755758859046294e-06,
        2.480149238830423e-05,
        0.00019841269502545768,
        0.001388888894424883,
        0.008333333333497015,
        0.04166666666652811,
        0.16666666666666408,
        0.5000000000000011,
        1.0,
        1.0,
    ),
}
# the same, relative to expm1(r)
_EXPM1: Final = {
    "f32": (
        0.0001984588016057387,
        0.0013940823264420033,
        0.008333389647305012,
        0.04166635870933533,
        0.1666666567325592,
        0.5,
    ),
    "f64": (
        2.08753247632807e-09,
        2.5109195166686544e-08,
        2.7557403282804786e-07,
        2.7557243803961396e-06,
        2.4801587171054524e-05,
        0.00019841269886477632,
        0.0013888888888963491,
        0.008333333333321513,
        0.041666666666666505,
        0.16666666666666677,
        0.5,
    ),
}
# 2^r, highest power first
EXP2: Final = {
    "f32": (
        0.00015320775855798274,
        0.0013390389503911138,
        0.009618530049920082,
        0.055503617972135544,
        0.24022647738456726,
        math.log(2.0),
        1.0,
    ),
    "f64": (
        4.4362572788396193e-10,
        7.073652564480592e-09,
        1.01781854976968e-07,
        1.3215436215750688e-06,
        1.5252733543669846e-05,
        0.00015403530454778782,
        0.0013333558146690339,
        0.009618129107596492,
        0.055504108664820716,
        0.24022650695910122,
        math.log(2.0),
        1.0,
    ),
}
_TANH: Final = {  # (tanh(x)/x - 1) / x^2 over x^2, |x| <= 0.7
    "f32": (
        0.0019017902668565512,
        -0.00789217185229063,
        0.02157583460211754,
        -0.05392212048172951,
        0.13332995772361755,
        -0.33333325386047363,
    ),
    "f64": (
        4.816208085384882e-06,
        -2.7114031230022967e-05,
        8.818433808818745e-05,
        -0.00023488193558852098,
        0.000588599130807733,
        -0.0014555006593484003,
        0.003592074379553592,
        -0.008863229746076213,
        0.02186948813782176,
        -0.05396825395213999,
        0.13333333333300593,
        -0.33333333333333104,
    ),
}
# below: exp is 0, above: infinity
_RANGE: Final = {"f32": (-104.0, 89.0), "f64": (-746.0, 710.0)}
EXP2_RANGE: Final = {"f32": (-151.0, 129.0), "f64": (-1076.0, 1025.0)}


def clamp(s: Scope, x: Expr, low: float, high: float) -> Var:
    """`x` clamped to `[low, high]`; NaN stays NaN."""
    capped = s.select(x > high, high, x, "capped")
    return s.select(capped < low, low, capped, "clamped")


def reduce_by_ln2(s: Scope, x: Expr) -> tuple[Var, Var]:
    """`(r, k)` with `x = k ln2 + r`."""
    high, low = LN2[s.dtype.name]
    whole, k = s.nearest(x, "exponent", math.log2(math.e))
    coarse = s.fma(whole, -high, x, "coarse_rest")
    return s.fma(whole, -low, coarse, "rest"), k


def exp_parts(s: Scope, x: Expr) -> tuple[Var, Var]:
    """`(p, k)` with `exp(x) = p * 2^k`, p within [0.7, 1.42]."""
    r, k = reduce_by_ln2(s, x)
    return s.horner(r, _EXP[s.dtype.name]), k


def scale(s: Scope, p: Expr, k: Expr) -> Var:
    """`p * 2^k`, rounded once, for k of twice the range of normal exponents."""
    half = s.let(k >> 1, "half_exponent")
    partly = s.let(p * s.power_of_two(half, "half_power"), "half_scaled")
    return s.let(partly * s.power_of_two(k - half, "other_power"), "scaled")


def exp(s: Scope, x: Expr) -> Expr:
    """`e` to the power x."""
    return scale(s, *exp_parts(s, clamp(s, x, *_RANGE[s.dtype.name])))


def exp2(s: Scope, x: Expr) -> Expr:
    """2 to the power x; exact for integral x."""
    x = clamp(s, x, *EXP2_RANGE[s.dtype.name])
    whole, k = s.nearest(x, "exponent")
    return scale(s, s.horner(s.let(x - whole, "rest"), EXP2[s.dtype.name]), k)


def expm1(s: Scope, x: Expr) -> Expr:
    """As `2 * (h e + (h - 1/2))`, where h is 2^(k-1) and e that of r alone."""
    low = -18.0 if s.single else -40.0  # below it is -1
    r, k = reduce_by_ln2(s, clamp(s, x, low, _RANGE[s.dtype.name][1]))
    e = s.fma(s.let(r * r), s.horner(r, _EXPM1[s.dtype.name]), r)
    half = s.power_of_two(k - 1)
    result = s.let(s.fma(half, e, half - 0.5) * 2.0)
    tiny = Unary("abs", x) < 2.0 ** -(s.mantissa + 3)  # x itself, and -0, subnormals
    return s.select(tiny, x, result)


def sigmoid(s: Scope, x: Expr) -> Expr:
    """`1 / (1 + exp(-x))`, via `exp(-|x|)` to avoid overflow."""
    e = s.let(exp(s, s.let(-Unary("abs", x))))
    return s.select(x < 0.0, e, 1.0) / (e + 1.0)


def tanh(s: Scope, x: Expr) -> Expr:
    """`x + x^3 P(x^2)` below 0.7, `1 - 2 / (exp(2|x|) + 1)` with its sign above.

    `exp(2t)` is `exp(2r) 2^k` with `t = k ln2 / 2 + r`. One evaluation does for both
    polynomials, with coefficients of either; k is added to the exponent.
    """
    name = s.dtype.name
    size = s.let(Unary("abs", x), "size")
    large = s.let(size >= 0.7, "large")  # not NaN
    most = 10.0 if s.single else 20.0
    t = s.select(size > most, most, size, "capped")
    high, low = LN2[name]
    whole, k = s.nearest(t, "exponent", 2 * math.log2(math.e))
    coarse = s.fma(whole, -high / 2, t, "coarse_rest")
    r = s.fma(whole, -low / 2, coarse, "rest")
    v = s.select(large, r, s.let(x * x))
    twice = [c * 2.0**n for n, c in enumerate(reversed(_EXP[name]))][:0:-1]
    twice = [0.0] * (len(_TANH[name]) - len(twice)) + twice
    first, *rest = [s.select(large, *c) for c in zip(twice, _TANH[name], strict=True)]
    q = first
    for coefficient in rest:
        q = s.fma(q, v, coefficient)
    above = s.float(s.bits(s.fma(q, v, 1.0)) + (k << s.mantissa))
    result = s.select(large, 1.0 - 2.0 / (above + 1.0), s.fma(s.let(q * v), x, x))
    return copysign(result, x)
