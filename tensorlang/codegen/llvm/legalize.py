"""Expansions of operations that LLVM or a processor lacks.

`legalized(expr, builder)` is an equivalent expression, or None if LLVM has an
instruction. f16 and bf16 are 16-bit integers to LLVM: depending on the processor, its
own types lead to calls of missing library functions, to instructions that flush
subnormals, or to aborts.

f16 and bf16 are converted via f32. Values from f64, wide integers or exact sums are
first rounded to odd (truncated, with the last bit set if inexact), so that rounding
twice equals rounding once (Boldo and Melquiond, 2008).
"""

from __future__ import annotations

import math
from typing import Final

from tensorlang.codegen.llvm.builder import Builder
from tensorlang.codegen.narrow import NARROW, computed_wide
from tensorlang.ir import nodes as ir
from tensorlang.ir.by_class import by_class
from tensorlang.ir.dtypes import DType, bf16, f32, f64, u16, u32, u64

# functions whose results on narrow floats are exactly representable
_EXACT: Final = ("floor", "ceil", "round", "trunc", "copysign")
_SIGN: Final = 0x8000
_F16_INFINITY: Final = 0x7C00
_F16_NAN: Final = 0x7E00
# numbers as bits of f32
_INFINITY: Final = 255 << 23
_65536: Final = (127 + 16) << 23
_HALF: Final = (127 - 1) << 23
_SMALLEST_F16: Final = (127 - 14) << 23  # smallest normal f16
_REBIASED: Final = (127 - 15) << 23  # difference of the exponent biases


@by_class
def legalized(expr: ir.Expr, builder: Builder) -> ir.Expr | None:
    """`expr` without what LLVM or the processor lacks; None if nothing is."""
    del builder
    return _by_f32(expr)


def _by_f32(expr: ir.Expr) -> ir.Expr | None:
    made = computed_wide(expr)
    return made if isinstance(made, ir.Expr) and made is not expr else None


@legalized.register
def _unary(expr: ir.Unary, _builder: Builder) -> ir.Expr | None:
    """Negation and absolute value of narrow floats change the sign bit."""
    if expr.dtype.name not in NARROW:
        return None
    bits = ir.Bitcast(_of(u16, expr), expr.a)
    changed = bits ^ _SIGN if expr.op == "neg" else bits & (_SIGN - 1)
    return ir.Bitcast(expr.dtype, changed)


@legalized.register
def _call(expr: ir.Call, builder: Builder) -> ir.Expr | None:
    if expr.name == "isnan":
        return expr.args[0].not_equal(expr.args[0])
    if expr.name == "isinf":
        return ir.Unary("abs", expr.args[0]).equal(math.inf)
    if expr.name != "fma":
        return _by_f32(expr)
    if expr.dtype.name == "f64" or (
        expr.dtype.name == "f32" and builder.module.target.has("fma")
    ):
        return None
    a, b, c = (_double(arg) for arg in expr.args)
    return ir.Cast(expr.dtype, _sum_to_odd(a * b, c))  # the product is exact


@legalized.register
def _lane_reduce(expr: ir.LaneReduce, _builder: Builder) -> ir.Expr | None:
    """Reduce all lanes by halves, in the interpreter's order.

    Sums of integers have any order. LLVM 22 takes the halves of a sum of products of u8
    and i8 for sums of four products, and drops the other lanes; its own reduction, not.
    """
    vector, lanes = expr.vector, expr.vector.dtype.lanes
    if vector.dtype.is_bool or (
        expr.op == "add" and vector.dtype.is_integer and lanes > 1
    ):
        return None
    if lanes == 1:
        return vector
    half = lanes // 2
    low, high = (ir.subvector(vector, first, half) for first in (0, half))
    folded: ir.Expr = ir.Binary(expr.op, low, high)
    if lanes % 2:  # the last odd lane joins the next round
        taken = (*range(half), max(half, 2) + lanes - 1)
        folded = ir.Shuffle((ir.splat(folded, max(half, 2)), vector), taken)
    return ir.LaneReduce(expr.op, folded)


# ---------------------------------------------------------------- conversions


@legalized.register
def _cast(expr: ir.Cast, builder: Builder) -> ir.Expr | None:
    a, source, result = expr.a, expr.a.dtype.scalar, expr.dtype.scalar
    if source.name in NARROW:
        return _widened(a, builder) if result == f32 else _by_f32(expr)
    if result.name not in NARROW:
        return None
    if source == f64:
        return ir.Cast(expr.dtype, _narrow_to_odd(a))
    if source.bits == 64:
        return ir.Cast(expr.dtype, _exact_sum(a))
    if source != f32:
        return _by_f32(expr)
    if (kept := _kept(a, result, builder)) is not None:
        return kept
    if result.name == "bf16":
        return _upper_half(_rounded_to_bf16(a))
    return None if builder.module.target.has("f16 conversions") else _rounded_to_f16(a)


def _kept(expr: ir.Expr, narrow: DType, builder: Builder) -> ir.Expr | None:
    """The narrow float that an f32 provably equals; None if unknown."""

    def kept(*parts: ir.Expr) -> list[ir.Expr] | None:
        found = [_kept(part, narrow, builder) for part in parts]
        return None if None in found else found  # type: ignore[return-value]

    match expr:
        case ir.Cast(a=a) if a.dtype.scalar == narrow:
            return a
        case ir.Var():
            twin = builder.narrow.get(expr)
            return twin if twin is not None and twin.dtype.scalar == narrow else None
        case ir.Const(value=value) if ir.Const(value, narrow).value == value:
            return ir.Const(value, narrow)
        case ir.Splat(value=a) if made := kept(a):
            return ir.Splat(made[0], expr.lanes)
        case ir.Unary(op=op, a=a) if made := kept(a):
            return ir.Unary(op, made[0])
        case ir.Select(cond=cond, a=a, b=b) if made := kept(a, b):
            return ir.Select(cond, *made)
        case ir.Binary(op="min" | "max", a=a, b=b) if narrow == bf16 and kept(a, b):
            return _upper_half(_bits(expr))
        case ir.Call(name=name, args=args) if name in _EXACT and narrow == bf16:
            return _upper_half(_bits(expr)) if kept(*args) else None
    return None


def _upper_half(words: ir.Expr) -> ir.Expr:
    """The bf16 in the upper half of each 32-bit word."""
    return ir.Bitcast(_of(bf16, words), ir.Cast(_of(u16, words), words >> 16))


def _widened(expr: ir.Expr, builder: Builder) -> ir.Expr | None:
    """An f16 or bf16 as f32, exactly."""
    if expr.dtype.name == "bf16":
        return ir.Bitcast(_of(f32, expr), _word(expr) << 16)
    return None if builder.module.target.has("f16 conversions") else _widened_f16(expr)


def _widened_f16(expr: ir.Expr) -> ir.Expr:
    """Place exponent and fraction, and scale by 2^112; correct for subnormals as well.

    The largest exponent (infinity, NaN) is mapped to the largest.
    """
    single, raw = _of(f32, expr), _word(expr)
    size = raw & (_SIGN - 1)
    scaled = _bits(ir.Bitcast(single, size << 13) * 2.0**112)
    finite = ir.select(size < _F16_INFINITY, scaled, scaled | _INFINITY)
    return ir.Bitcast(single, finite | ((raw & _SIGN) << 16))


def _rounded_to_bf16(near: ir.Expr) -> ir.Expr:
    """Round to the upper 16 bits: add half a unit in the last place, ties to even.

    A carry from the fraction correctly propagates into the exponent, up to infinity.
    NaN could carry into the sign and is made quiet instead.
    """
    bits = _bits(near)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    return ir.select(near.equal(near), rounded, bits | (1 << 22))


def _rounded_to_f16(near: ir.Expr) -> ir.Expr:
    """Round to 10 bits of fraction; subnormals are rounded by adding 0.5."""
    bits = _bits(near)
    size = bits & ((1 << 31) - 1)
    normal = (size + (0xFFF - _REBIASED) + ((size >> 13) & 1)) >> 13
    small = _bits(ir.Bitcast(near.dtype, size) + 0.5) - _HALF
    finite = ir.select(size < _SMALLEST_F16, small, normal)
    number = near.equal(near)
    infinity = ir.splat(ir.Const(_F16_INFINITY, u32), _count(near))
    rounded = ir.select(size < _65536, finite, ir.select(number, infinity, _F16_NAN))
    half = ir.Cast(_of(u16, near), rounded | ((bits >> 16) & _SIGN))
    return ir.Bitcast(DType("f16", _count(near)), half)


# ------------------------------------------------------------ rounding to odd


def _exact_sum(whole: ir.Expr) -> ir.Expr:
    """A 64-bit integer as f64, rounded to odd: the sum of two exact parts."""
    low = whole & 0xFF
    return _sum_to_odd(*(part.cast(_of(f64, whole)) for part in (whole - low, low)))


def _narrow_to_odd(wide: ir.Expr) -> ir.Expr:
    """An f64 as f32, rounded to odd."""
    near = wide.cast(_of(f32, wide))
    back = near.cast(wide.dtype)
    above = ir.Unary("abs", back) > ir.Unary("abs", wide)
    return _odd(near, above, _differ(back, wide))


def _sum_to_odd(a: ir.Expr, b: ir.Expr) -> ir.Expr:
    """`a + b` in f64, rounded to odd; the error term is exact (Knuth's TwoSum)."""
    total = a + b
    back = total - a
    error = (a - (total - back)) + (b - back)
    lost = _differ(error, 0.0)
    return _odd(total, ((total < 0.0) ^ (error < 0.0)) & lost, lost)


def _differ(a: ir.Expr, b: ir.ExprLike) -> ir.Expr:
    """Whether two numbers differ; false for NaN."""
    return (a < b) | (a > b)


def _odd(near: ir.Expr, above: ir.Expr, lost: ir.Expr) -> ir.Expr:
    """Round to odd: step towards 0 if `near` is above, then set the sticky bit."""
    bits = ir.Bitcast(_of(u32 if near.dtype.bits == 32 else u64, near), near)
    return ir.Bitcast(
        near.dtype, (bits - above.cast(bits.dtype)) | lost.cast(bits.dtype)
    )


def _double(expr: ir.Expr) -> ir.Expr:
    """The exact value as f64."""
    return expr.cast(_of(f32, expr)).cast(_of(f64, expr))


def _word(half: ir.Expr) -> ir.Expr:
    """The bits of an f16 or bf16, as u32."""
    return ir.Bitcast(_of(u16, half), half).cast(_of(u32, half))


def _bits(single: ir.Expr) -> ir.Expr:
    return ir.Bitcast(_of(u32, single), single)


def _of(dtype: DType, like: ir.Expr) -> DType:
    return dtype.vector(_count(like))


def _count(expr: ir.Expr) -> int:
    return expr.dtype.lanes
