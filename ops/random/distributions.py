"""Distributions: expressions from random bits to elements.

Each maps raw bits, of the width that the type requires, to one element by JAX's
formulas. Results are bitwise equal to JAX's for integer and correctly rounded
operations (uniform, bernoulli), and within a few ulp for log1p or erfinv.
"""

from __future__ import annotations

import math
from typing import Final

from tensorlang import ir
from tensorlang.ir.intrinsics import clz
from tensorlang.ops.random.words import UNSIGNED

# fraction bits, and the bit pattern of 1.0
_FRACTION: Final = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}
_ONE: Final = {
    "f16": 0x3C00,
    "bf16": 0x3F80,
    "f32": 0x3F800000,
    "f64": 0x3FF0000000000000,
}
_TINY: Final = {"f16": 2.0**-14, "bf16": 2.0**-126, "f32": 2.0**-126, "f64": 2.0**-1022}


def unit(bits: ir.Expr, dtype: ir.DType) -> ir.Expr:
    """A float in [0, 1), a multiple of 2^-fraction bits, from bits of normal width."""
    drawn = UNSIGNED[dtype.bits]
    kept = bits.cast(drawn) >> (bits.dtype.bits - _FRACTION[dtype.name])
    return ir.Bitcast(dtype, kept | _ONE[dtype.name]) - ir.Const(1.0, dtype)


def between(u: ir.Expr, low: ir.Expr, high: ir.Expr) -> ir.Expr:
    """`u` in [0, 1) scaled to [low, high), with the rounding of XLA.

    That is one fma in f32 and f64; narrower types round after each operation.
    """
    span = high - low
    fused = u.dtype.bits >= 32
    moved = ir.fma(u, span, low) if fused else u * span + low
    return ir.Binary("max", low, moved)


def fine_unit(bits: ir.Expr, dtype: ir.DType) -> ir.Expr:
    """A float in [0, 1) with the full precision of its type near 0, from wide bits.

    The bits are a fixed-point number, truncated to the precision of the type: every
    float down to 2^-32 (f16, bf16) or 2^-64 has its exact probability. With z leading
    zeros, the bits after the leading one are the fraction, and the exponent is -1 - z.
    """
    work = ir.f64 if dtype == ir.f64 else ir.f32
    digits = _FRACTION[dtype.name] + 1
    zeros = clz(bits)
    top = (bits << zeros) >> (bits.dtype.bits - digits)
    word = UNSIGNED[work.bits]
    spare = _FRACTION[work.name] + 1 - digits
    fraction = (top.cast(word) << spare) & ((1 << _FRACTION[work.name]) - 1)
    bias = _ONE[work.name] >> _FRACTION[work.name]
    exponent = (ir.Const(bias - 1, word) - zeros.cast(word)) << _FRACTION[work.name]
    value = ir.Bitcast(work, exponent | fraction)
    return ir.Select(bits.equal(0), ir.Const(0.0, work), value).cast(dtype)


def between_ones(bits: ir.Expr, dtype: ir.DType) -> ir.Expr:
    """A float in (-1, 1), from the lowest value above -1."""
    low = ir.Const(-1.0 + 2.0 ** -(_FRACTION[dtype.name] + 1), dtype)
    return between(unit(bits, dtype), low, ir.Const(1.0, dtype))


def truncated_normal(  # noqa: PLR0917 - two bounds and their neighbours
    bits: ir.Expr,
    dtype: ir.DType,
    lower: ir.Expr,
    above: ir.Expr,
    upper: ir.Expr,
    below: ir.Expr,
) -> ir.Expr:
    """A standard normal variate between `lower` and `upper`, clamped to their insides.

    `above` is the float next to `lower`, `below` the one next to `upper`.
    """
    root = ir.Const(math.sqrt(2), dtype)
    u = between(unit(bits, dtype), ir.erf(lower / root), ir.erf(upper / root))
    return ir.Binary("min", ir.Binary("max", root * ir.erfinv(u), above), below)


def gumbel(bits: ir.Expr, dtype: ir.DType) -> ir.Expr:
    """A standard Gumbel variate, `-log(-log(u))` with u in [tiny, 1)."""
    tiny = ir.Const(_TINY[dtype.name], dtype)
    u = between(unit(bits, dtype), tiny, ir.Const(1.0, dtype))
    return -ir.log(-ir.log(u))
