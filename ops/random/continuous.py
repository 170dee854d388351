"""Continuous distributions: normal, truncated normal, exponential, Gumbel.

Each maps raw bits, of the width that the type requires, to one element by JAX's
formulas. Results are bitwise equal to JAX's for integer and correctly rounded
operations (uniform, bernoulli), and within a few ulp for log1p or erfinv.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from tensorlang import ir, lazy
from tensorlang.errors import ArgumentError
from tensorlang.ops.random.draw import (
    FLOATS,
    Stream,
    drawn,
    element_type,
    from_bits,
    number,
)
from tensorlang.ops.random.formats import width_of
from tensorlang.ops.spec.signature import Derived, Elements, ElementType, Key, Offset

with lazy.modules(__name__):
    from tensorlang.ops.random import definitions

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
    drawn = ir.DType(f"u{dtype.bits}")
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
    zeros = ir.natives.clz(bits)
    top = (bits << zeros) >> (bits.dtype.bits - digits)
    word = ir.DType(f"u{work.bits}")
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


@from_bits("random.normal")
def normal(bits: ir.Expr, dtype: ir.DType) -> ir.Expr:
    """Standard normal floats, `sqrt(2) * erfinv(u)` for u uniform on (-1, 1).

    Within 3 ulp of JAX's, and bitwise equal on all targets.
    """
    return ir.Const(math.sqrt(2), dtype) * ir.erfinv(between_ones(bits, dtype))


@from_bits("random.exponential")
def exponential(bits: ir.Expr, dtype: ir.DType) -> ir.Expr:
    """Exponentially distributed floats of rate 1, `-log1p(-u)`."""
    return -ir.log1p(-unit(bits, dtype))


def standard_gumbel(bits: ir.Expr, dtype: ir.DType) -> ir.Expr:
    """A standard Gumbel variate, `-log(-log(u))` with u in [tiny, 1)."""
    tiny = ir.Const(_TINY[dtype.name], dtype)
    u = between(unit(bits, dtype), tiny, ir.Const(1.0, dtype))
    return -ir.log(-ir.log(u))


@from_bits("random.gumbel")
def gumbel(bits: ir.Expr, dtype: ir.DType) -> ir.Expr:
    """Standard Gumbel floats, `-log(-log(u))`."""
    return standard_gumbel(bits, dtype)


def _bounds(
    lower: object, upper: object, dtype: object
) -> tuple[str, tuple[float, float, float, float]]:
    """The bounds rounded to the element type, and their neighbours inside the range."""
    name = "random.truncated_normal"
    low, high = number(name, "lower", lower), number(name, "upper", upper)
    if not low < high:
        raise ArgumentError(f"{name}: lower {low} is not below upper {high}")
    kind = element_type(name, dtype, FLOATS)
    held = ir.DType(kind).numpy.type
    bounds = held(low), held(high)
    above = np.nextafter(bounds[0], held(math.inf))
    below = np.nextafter(bounds[1], held(-math.inf))
    wide = "f64" if kind == "f64" else "f32"
    said = f"lower:{wide},{wide} upper:{wide},{wide}"
    return said, (float(bounds[0]), float(above), float(bounds[1]), float(below))


@drawn(
    "random.truncated_normal", derive=_bounds, measured=({"lower": -2.0, "upper": 2.0},)
)
def truncated_normal(
    key: Key,
    lower: Derived,
    upper: Derived,
    shape: Elements = (),
    dtype: ElementType = "float32",
    *,
    offset: Offset = 0,
    stream: Stream = "jax",
) -> ir.Tensor:
    """Standard normal floats truncated to lower < x < upper.

    Args:
        lower: The lower bound; -inf for none.
        upper: The upper bound; inf for none.
    """

    def element(bits: ir.Expr) -> ir.Expr:
        low, above, high, below = (value.cast(dtype) for value in (*lower, *upper))
        root = ir.Const(math.sqrt(2), dtype)
        u = between(unit(bits, dtype), ir.erf(low / root), ir.erf(high / root))
        return ir.Binary("min", ir.Binary("max", root * ir.erfinv(u), above), below)

    source = definitions.Source.of(key, stream, offset)
    return source.drawn(shape, dtype, width_of("truncated_normal", dtype.name), element)
