"""What a draw turns random bits into: floats, and the distributions with parameters.

Each takes raw bits of the width its type asks for and gives one element, by JAX's
formulas, so that the results are JAX's: bit for bit where only integers and correctly
rounded operations occur (uniform, bernoulli), within a few ulp with log1p or erfinv.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from tensorlang.ir.dtypes import DType, f32, f64, u32
from tensorlang.ir.intrinsics import clz, erf, erfinv, fma, log
from tensorlang.ir.nodes import Binary, Bitcast, Const, Expr, Select, Unary, Var
from tensorlang.ops.random.words import UNSIGNED

# bits of the fraction, and the bits of 1.0
_FRACTION: Final = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}
_ONE: Final = {
    "f16": 0x3C00,
    "bf16": 0x3F80,
    "f32": 0x3F800000,
    "f64": 0x3FF0000000000000,
}
_TINY: Final = {"f16": 2.0**-14, "bf16": 2.0**-126, "f32": 2.0**-126, "f64": 2.0**-1022}

# from the bits of an element and its type, and scalars by name, to the element
Formula: TypeAlias = Callable[..., Expr]
# scalars: without a type, f64 for an f64 result, else f32
Numbers: TypeAlias = tuple[tuple[str, DType | None], ...]


@dataclass(frozen=True, slots=True)
class Distribution:
    """What an element is, and which scalars it takes."""

    value: Formula
    scalars: Numbers = ()


def parameters(scalars: Numbers, dtype: DType) -> tuple[Var, ...]:
    """A kernel's scalars, for a result of `dtype`."""
    usual = f64 if dtype == f64 else f32
    return tuple(Var(name, kind or usual) for name, kind in scalars)


def unit(bits: Expr, dtype: DType) -> Expr:
    """A float in [0, 1), a multiple of 2^-fraction, from bits of its usual width."""
    drawn = UNSIGNED[dtype.bits]
    kept = bits.cast(drawn) >> (bits.dtype.bits - _FRACTION[dtype.name])
    return Bitcast(dtype, kept | _ONE[dtype.name]) - Const(1.0, dtype)


def between(u: Expr, low: Expr, high: Expr) -> Expr:
    """`u` of [0, 1) stretched to [low, high), rounded as XLA does.

    That is one fma in f32 and f64; the narrow types round after each operation.
    """
    span = high - low
    fused = u.dtype.bits >= 32
    moved = fma(u, span, low) if fused else u * span + low
    return Binary("max", low, moved)


def fine_unit(bits: Expr, dtype: DType) -> Expr:
    """A float in [0, 1) with all the precision of its type near 0, from wide bits.

    The bits are a fixed-point number, truncated to the type's digits: every float down
    to 2^-32 (f16, bf16) or 2^-64 has its right probability. With z leading zeros the
    top digits are the fraction and the exponent is -1 - z.
    """
    work = f64 if dtype == f64 else f32
    digits = _FRACTION[dtype.name] + 1
    zeros = clz(bits)
    top = (bits << zeros) >> (bits.dtype.bits - digits)
    word = UNSIGNED[work.bits]
    spare = _FRACTION[work.name] + 1 - digits
    fraction = (top.cast(word) << spare) & ((1 << _FRACTION[work.name]) - 1)
    bias = _ONE[work.name] >> _FRACTION[work.name]
    exponent = (Const(bias - 1, word) - zeros.cast(word)) << _FRACTION[work.name]
    value = Bitcast(work, exponent | fraction)
    return Select(bits.equal(0), Const(0.0, work), value).cast(dtype)


def _negative(x: Expr) -> Expr:
    return Unary("neg", x)


def _uniform(bits: Expr, dtype: DType, minval: Expr, maxval: Expr) -> Expr:
    return between(unit(bits, dtype), minval.cast(dtype), maxval.cast(dtype))


def _fine_uniform(bits: Expr, dtype: DType, minval: Expr, maxval: Expr) -> Expr:
    return between(fine_unit(bits, dtype), minval.cast(dtype), maxval.cast(dtype))


def _bernoulli(bits: Expr, _: DType, threshold: Expr) -> Expr:
    """`unit(bits) < p` in integers: the threshold is ceil(p * 2^23)."""
    return (bits >> 9) < threshold


def between_ones(bits: Expr, dtype: DType) -> Expr:
    """A float in (-1, 1), from its lowest value above -1 on."""
    low = Const(-1.0 + 2.0 ** -(_FRACTION[dtype.name] + 1), dtype)
    return between(unit(bits, dtype), low, Const(1.0, dtype))


def _truncated_normal(bits: Expr, dtype: DType, **given: Expr) -> Expr:
    root = Const(math.sqrt(2), dtype)
    lower, upper, above, below = (given[name].cast(dtype) for name, _ in _BOUNDS)
    u = between(unit(bits, dtype), erf(lower / root), erf(upper / root))
    return Binary("min", Binary("max", root * erfinv(u), above), below)


def gumbel(bits: Expr, dtype: DType) -> Expr:
    """A standard Gumbel variate, `-log(-log(u))` with u in [tiny, 1)."""
    tiny = Const(_TINY[dtype.name], dtype)
    u = between(unit(bits, dtype), tiny, Const(1.0, dtype))
    return _negative(log(_negative(log(u))))


_RANGE: Final = (("minval", None), ("maxval", None))
_BOUNDS: Final = tuple((name, None) for name in ("lower", "upper", "above", "below"))

DISTRIBUTIONS: Final[dict[str, Distribution]] = {
    "uniform": Distribution(_uniform, _RANGE),
    "unit": Distribution(unit),
    "fine": Distribution(_fine_uniform, _RANGE),
    "bernoulli": Distribution(_bernoulli, (("threshold", u32),)),
    "truncated_normal": Distribution(_truncated_normal, _BOUNDS),
}
