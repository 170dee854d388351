"""sin and cos, for arguments of any magnitude.

`|x| = (4n + q) pi/2 + r + tail`. Up to a limit, pi/2 in three parts is subtracted
(Cody and Waite). Beyond it, by the method of Payne and Hanek (1983) in integers: the
mantissa times those bits of 2/pi that matter for its exponent, modulo 4; so r is
accurate even for the largest floats. There is no table lookup: selects choose the
words. As that is long and seldom needed, it is an intrinsic of its own, on which
lowering branches.
"""

from __future__ import annotations

import math
from typing import Final

from tensorlang.ir import nodes as ir
from tensorlang.ir.dtypes import f64, i64, u64
from tensorlang.ir.math.scope import Scope
from tensorlang.ir.natives import mulhi

# the first 1216 fraction bits of 2/pi
_TWO_OVER_PI: Final = (
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561"
    "b7246e3a424dd2e006492eea09d1921cfe1deb1cb129a73ee88235f52ebb4484"
    "e99c7026b45f7e413991d639835339f49c845f8bbdf9283b1ff897ffde05980f"
    "ef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d7527bac7ebe5f17b"
    "3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6bab"
)
_HALF_PI: Final = (1.5707963267948966, 6.123233995736766e-17)
# pi/2 as a sum of three floats. A multiple of the first is subtracted exactly, as both
# numbers are multiples of its last place; those of the third are far below any r.
_PARTS: Final = {
    "f32": (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    "f64": (*_HALF_PI, -1.4973849048591698e-33),
}
_NEAR: Final = {"f32": 2.0**16, "f64": 2.0**30}  # from here on, Payne and Hanek
# (sin(r)/r - 1) / r^2 and (cos(r) - 1) / r^2 over r^2, |r| <= pi/4
_SIN: Final = {
    "f32": (
        2.718275254665059e-06,
        -0.00019839331798721105,
        0.008333329111337662,
        -0.1666666716337204,
    ),
    "f64": (
        1.5896666241197725e-10,
        -2.5050755957848757e-08,
        2.755731367866059e-06,
        -0.00019841269829771273,
        0.00833333333332237,
        -0.16666666666666632,
    ),
}
_COS: Final = {
    "f32": (2.4438078980892897e-05, -0.0013887364184483886, 0.04166664555668831, -0.5),
    "f64": (
        -1.1359558825135237e-11,
        2.087572161477149e-09,
        -2.755731434060191e-07,
        2.4801587289443322e-05,
        -0.0013888888888874064,
        0.0416666666666666,
        -0.5,
    ),
}
# number of zero bits before those of 2/pi, the exponent that then aligns with the first
# word, the number of words, and how many more a product needs
_WINDOW: Final = {"f32": (32, 152, 5, 2), "f64": (64, 1077, 20, 4)}


def sin(s: Scope, x: ir.Expr) -> ir.Expr:
    """The sine of x radians."""
    size = s.let(ir.Unary("abs", x), "size")
    r, tail, quadrant = _near(s, size)
    return _or_far(s, "far_sin", x, _wave(s, r, tail, quadrant, s.bits(x)))


def cos(s: Scope, x: ir.Expr) -> ir.Expr:
    """The cosine of x radians."""
    r, tail, quadrant = _near(s, s.let(ir.Unary("abs", x), "size"))
    return _or_far(s, "far_cos", x, _wave(s, r, tail, s.let(quadrant + 1, "quadrant")))


def far_sin(s: Scope, x: ir.Expr) -> ir.Expr:
    """The sine of x radians, by Payne and Hanek's reduction."""
    r, tail, quadrant = _reduced(s, s.let(ir.Unary("abs", x), "size"))
    return _if_finite(s, x, _wave(s, r, tail, quadrant, s.bits(x)))


def far_cos(s: Scope, x: ir.Expr) -> ir.Expr:
    """The cosine of x radians, by Payne and Hanek's reduction."""
    r, tail, quadrant = _reduced(s, s.let(ir.Unary("abs", x), "size"))
    return _if_finite(s, x, _wave(s, r, tail, s.let(quadrant + 1, "quadrant")))


def _or_far(s: Scope, name: str, x: ir.Expr, near: ir.Expr) -> ir.Var:
    """`near` below the limit; else, and for NaN, the intrinsic `name`."""
    inside = ir.Unary("abs", x) < _NEAR[s.dtype.name]
    return s.select(ir.Unary("not", inside), ir.Call(name, (x,), s.dtype), near)


def _if_finite(s: Scope, x: ir.Expr, value: ir.Expr) -> ir.Var:
    return s.select(ir.Unary("abs", x) < math.inf, value, math.nan)


def _near(s: Scope, size: ir.Expr) -> tuple[ir.Var, ir.Var, ir.Var]:
    """`(r, tail, q)` with `size = (4n + q) pi/2 + r + tail`, `size` below the limit."""
    first, second, third = _PARTS[s.dtype.name]
    whole, quadrant = s.nearest(size, "quadrant", 2 / math.pi)
    most = s.fma(whole, -first, size)
    product = s.let(whole * second)
    missed = s.fma(whole, second, -product)
    r = s.let(most - product, "rest")
    tail = s.fma(whole, -third, ((most - r) - product) - missed, "tail")
    return r, tail, quadrant


def _wave(
    s: Scope, r: ir.Expr, tail: ir.Expr, quadrant: ir.Expr, sign: ir.Expr | None = None
) -> ir.Var:
    """The sine of `quadrant * pi/2 + r + tail`, negated if `sign` is negative."""
    z = s.fma(r, r, r * (tail + tail), "square")
    sine = s.let(r + s.fma(r * z, s.horner(z, _SIN[s.dtype.name]), tail), "sine")
    cosine = s.fma(s.horner(z, _COS[s.dtype.name]), z, 1.0, "cosine")
    value = s.select(_odd(s, quadrant), cosine, sine)
    flip = s.let(quadrant << (s.dtype.bits - 2))
    flip = flip if sign is None else s.let(flip ^ sign)
    return s.float(s.bits(value) ^ (flip & s.int.limits[0]))


def _odd(s: Scope, number: ir.Expr, bit: int = 1) -> ir.Var:
    zero = ir.splat(ir.Const(0, number.dtype.scalar), s.dtype.lanes)
    return s.let(ir.Compare("ne", number & bit, zero))


def _reduced(s: Scope, size: ir.Expr) -> tuple[ir.Var, ir.Var, ir.Var]:
    """`(r, tail, q)` with `size = (4n + q) pi/2 + r + tail`."""
    bits = s.let(ir.Cast(u64.vector(s.dtype.lanes), ir.Bitcast(s.uint, size)))
    mantissa = s.let((bits & ((1 << s.mantissa) - 1)) | (1 << s.mantissa))
    high, low = _product(s, mantissa, s.let(bits >> s.mantissa))
    quadrant = s.let((high + (1 << 61)) >> 62)
    r, tail = _angle(s, s.let((high << 2) | (low >> 62)), s.let(low << 2))
    small = s.let(size < math.pi / 4)
    none = ir.splat(ir.Const(0, u64), s.dtype.lanes)
    return (
        s.select(small, size, r),
        s.select(small, 0.0, tail),
        s.let(ir.Cast(s.int, ir.Select(small, none, quadrant))),
    )


def _product(s: Scope, mantissa: ir.Expr, exponent: ir.Expr) -> tuple[ir.Var, ir.Var]:
    """The 128 bits of `size * 2/pi` from the bit of weight 2 downwards."""
    zeros, origin, _, _ = _WINDOW[s.dtype.name]
    start = s.let(exponent + ((zeros - origin) % 2**64))
    # below pi/4 it is not used
    start = s.let(ir.Select(start < 2048, start, start * 0))
    words = _window(s, s.let(start >> 6))
    shift = s.let(start & 63)
    back = s.let(63 - shift)
    lanes = [
        s.let((words[n] << shift) | ((words[n + 1] >> 1) >> back))
        for n in range(len(words) - 1)
    ]
    if s.single:  # 24 mantissa bits leave 40 of the first word, which is enough
        return s.let(
            mantissa * lanes[0] + ((mantissa * (lanes[1] >> 32)) >> 32)
        ), s.let(lanes[0] * 0)
    below = s.let(mantissa * lanes[1])
    low = s.let(below + mulhi(mantissa, lanes[2]))
    carry = s.let(ir.Cast(low.dtype, low < below))
    return s.let(mantissa * lanes[0] + mulhi(mantissa, lanes[1]) + carry), low


def _window(s: Scope, first: ir.Expr) -> list[ir.Expr]:
    """The words starting at number `first`, selected bit by bit of it."""
    zeros, _, count, spare = _WINDOW[s.dtype.name]
    digits = "0" * (zeros // 4) + _TWO_OVER_PI
    lanes = s.dtype.lanes
    words: list[ir.Expr] = [
        ir.splat(ir.Const(int(digits[at : at + 16], 16), u64), lanes)
        for at in range(0, 16 * count, 16)
    ]
    need = spare if not s.single else 3
    for step in (16, 8, 4, 2, 1):
        if step + need > len(words) + 1:
            continue
        taken = _odd(s, first, step)
        length = min(len(words), need + step - 1)
        words = [
            s.let(ir.Select(taken, words[min(n + step, len(words) - 1)], words[n]))
            for n in range(length)
        ]
    return words[:need]


def _angle(s: Scope, high: ir.Expr, low: ir.Expr) -> tuple[ir.Var, ir.Var]:
    """A signed 128-bit fraction of a quarter turn, as radians in two parts."""
    wide = f64.vector(s.dtype.lanes)
    signed = s.let(ir.Bitcast(i64.vector(s.dtype.lanes), high))
    if s.single:
        turn = s.let(ir.Cast(wide, signed) * (_HALF_PI[0] * 2.0**-64))
        near = s.let(ir.Cast(s.dtype, turn))
        return near, s.let(ir.Cast(s.dtype, turn - ir.Cast(wide, near)))
    top = s.let(ir.Cast(wide, signed >> 32) * 2.0**-32)
    middle = s.let(ir.Cast(wide, signed & 0xFFFFFFFF) * 2.0**-64)
    y = s.let(top + middle)
    rest = s.let(((top - y) + middle) + ir.Cast(wide, low >> 11) * 2.0**-117)
    r = s.let(y * _HALF_PI[0])
    error = s.fma(y, _HALF_PI[0], -r)
    return r, s.fma(rest, _HALF_PI[0], s.fma(y, _HALF_PI[1], error))
