"""What LLVM or a processor lacks, in nodes that all have.

`instead(expr, builder)` is the same value in other nodes, or None where LLVM has an
instruction. f16 and bf16 are 16-bit integers to LLVM: of its own two types it makes, by
processor, calls of functions that no library has, instructions that take subnormal
numbers for 0, or an abort.

f16 and bf16 are reached through f32. What comes from f64, wide integers or exact sums
is first rounded to odd: cut off, its last bit set where anything was lost. Then two
roundings are as one (Boldo and Melquiond, 2008).
"""

from __future__ import annotations

import math
from functools import singledispatch
from typing import Final

from tensorlang.codegen.llvm.builder import Builder
from tensorlang.codegen.narrow import NARROW, computed_wide
from tensorlang.ir.dtypes import DType, bf16, f32, f64, u16, u32, u64
from tensorlang.ir.nodes import (
    Binary,
    Bitcast,
    Call,
    Cast,
    Const,
    Expr,
    ExprLike,
    Extract,
    LaneReduce,
    Select,
    Shuffle,
    Splat,
    Unary,
    Var,
    select,
    splat,
)

# of numbers of a narrow type, these give one again
_EXACT: Final = ("floor", "ceil", "round", "trunc", "copysign")
_SIGN: Final = 0x8000
_F16_INFINITY: Final = 0x7C00
_F16_NAN: Final = 0x7E00
# numbers by their bits as f32
_INFINITY: Final = 255 << 23
_65536: Final = (127 + 16) << 23
_HALF: Final = (127 - 1) << 23
_SMALLEST_F16: Final = (127 - 14) << 23  # of the normal ones
_REBIASED: Final = (127 - 15) << 23  # between the exponents of f16 and f32


@singledispatch
def instead(expr: Expr, builder: Builder) -> Expr | None:
    """The value of `expr` without what LLVM or the processor lacks."""
    del builder
    return _by_f32(expr)


def _by_f32(expr: Expr) -> Expr | None:
    made = computed_wide(expr)
    return made if isinstance(made, Expr) and made is not expr else None


@instead.register
def _unary(expr: Unary, builder: Builder) -> Expr | None:
    """The sign of a narrow float is a bit."""
    del builder
    if expr.dtype.name not in NARROW:
        return None
    bits = Bitcast(_of(u16, expr), expr.a)
    changed = bits ^ _SIGN if expr.op == "neg" else bits & (_SIGN - 1)
    return Bitcast(expr.dtype, changed)


@instead.register
def _call(expr: Call, builder: Builder) -> Expr | None:
    if expr.name == "isnan":
        return expr.args[0].not_equal(expr.args[0])
    if expr.name == "isinf":
        return Unary("abs", expr.args[0]).equal(math.inf)
    if expr.name != "fma":
        return _by_f32(expr)
    if expr.dtype.name == "f64" or (
        expr.dtype.name == "f32" and builder.module.target.has("fma")
    ):
        return None
    a, b, c = (_double(arg) for arg in expr.args)
    return Cast(expr.dtype, _sum_to_odd(a * b, c))  # the product is exact


@instead.register
def _lane_reduce(expr: LaneReduce, builder: Builder) -> Expr | None:
    """All lanes folded, halves first: the same tree as the interpreter's."""
    del builder
    vector, lanes = expr.vector, expr.vector.dtype.lanes
    if vector.dtype.is_bool:
        return None
    if lanes == 1:
        return vector
    half = lanes // 2
    low, high = (_lanes(vector, first, half) for first in (0, half))
    folded: Expr = Binary(expr.op, low, high)
    if lanes % 2:  # the odd lane at the end waits for the next round
        taken = (*range(half), max(half, 2) + lanes - 1)
        folded = Shuffle((splat(folded, max(half, 2)), vector), taken)
    return LaneReduce(expr.op, folded)


def _lanes(vector: Expr, first: int, count: int) -> Expr:
    if count == 1:
        return Extract(vector, first)
    return Shuffle((vector,), tuple(range(first, first + count)))


# ---------------------------------------------------------------- conversions


@instead.register
def _cast(expr: Cast, builder: Builder) -> Expr | None:
    a, source, result = expr.a, expr.a.dtype.scalar, expr.dtype.scalar
    if source.name in NARROW:
        return _widened(a, builder) if result == f32 else _by_f32(expr)
    if result.name not in NARROW:
        return None
    if source == f64:
        return Cast(expr.dtype, _narrow_to_odd(a))
    if source.bits == 64:
        return Cast(expr.dtype, _exact_sum(a))
    if source != f32:
        return _by_f32(expr)
    if (kept := _kept(a, result, builder)) is not None:
        return kept
    if result.name == "bf16":
        return _upper_half(_rounded_to_bf16(a))
    return None if builder.module.target.has("f16 conversions") else _rounded_to_f16(a)


def _kept(expr: Expr, narrow: DType, builder: Builder) -> Expr | None:
    """The number of a narrow type that an f32 is sure to be, without rounding it."""

    def kept(*parts: Expr) -> list[Expr] | None:
        found = [_kept(part, narrow, builder) for part in parts]
        return None if None in found else found  # type: ignore[return-value]

    match expr:
        case Cast(a=a) if a.dtype.scalar == narrow:
            return a
        case Var():
            twin = builder.narrow.get(expr)
            return twin if twin is not None and twin.dtype.scalar == narrow else None
        case Const(value=value) if Const(value, narrow).value == value:
            return Const(value, narrow)
        case Splat(value=a) if made := kept(a):
            return Splat(made[0], expr.lanes)
        case Unary(op=op, a=a) if made := kept(a):
            return Unary(op, made[0])
        case Select(cond=cond, a=a, b=b) if made := kept(a, b):
            return Select(cond, *made)
        case Binary(op="min" | "max", a=a, b=b) if narrow == bf16 and kept(a, b):
            return _upper_half(_bits(expr))
        case Call(name=name, args=args) if name in _EXACT and narrow == bf16:
            return _upper_half(_bits(expr)) if kept(*args) else None
    return None


def _upper_half(words: Expr) -> Expr:
    """The bf16 in the upper halves of 32 bits."""
    return Bitcast(_of(bf16, words), Cast(_of(u16, words), words >> 16))


def _widened(expr: Expr, builder: Builder) -> Expr | None:
    """An f16 or bf16 as f32: exact."""
    if expr.dtype.name == "bf16":
        return Bitcast(_of(f32, expr), _word(expr) << 16)
    return None if builder.module.target.has("f16 conversions") else _widened_f16(expr)


def _widened_f16(expr: Expr) -> Expr:
    """Exponent and fraction in place, times 2^112: subnormal numbers come right, too.

    What had the largest exponent gets the largest again.
    """
    single, raw = _of(f32, expr), _word(expr)
    size = raw & (_SIGN - 1)
    scaled = _bits(Bitcast(single, size << 13) * 2.0**112)
    finite = select(size < _F16_INFINITY, scaled, scaled | _INFINITY)
    return Bitcast(single, finite | ((raw & _SIGN) << 16))


def _rounded_to_bf16(near: Expr) -> Expr:
    """The upper 16 bits, with half a last place added, less 1 below an even one.

    A carry out of the fraction goes on to the exponent, up to infinity. NaN would carry
    into the sign: it is made quiet instead.
    """
    bits = _bits(near)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    return select(near.equal(near), rounded, bits | (1 << 22))


def _rounded_to_f16(near: Expr) -> Expr:
    """The same of ten bits; what is subnormal is rounded by an addition to 0.5."""
    bits = _bits(near)
    size = bits & ((1 << 31) - 1)
    normal = (size + (0xFFF - _REBIASED) + ((size >> 13) & 1)) >> 13
    small = _bits(Bitcast(near.dtype, size) + 0.5) - _HALF
    finite = select(size < _SMALLEST_F16, small, normal)
    number, infinity = near.equal(near), splat(Const(_F16_INFINITY, u32), _count(near))
    rounded = select(size < _65536, finite, select(number, infinity, _F16_NAN))
    half = Cast(_of(u16, near), rounded | ((bits >> 16) & _SIGN))
    return Bitcast(DType("f16", _count(near)), half)


# ------------------------------------------------------------ rounding to odd


def _exact_sum(whole: Expr) -> Expr:
    """An integer of 64 bits as f64, rounded to odd: both parts of it are exact."""
    low = whole & 0xFF
    return _sum_to_odd(*(part.cast(_of(f64, whole)) for part in (whole - low, low)))


def _narrow_to_odd(wide: Expr) -> Expr:
    """An f64 as f32."""
    near = wide.cast(_of(f32, wide))
    back = near.cast(wide.dtype)
    above = Unary("abs", back) > Unary("abs", wide)
    return _odd(near, above, _differ(back, wide))


def _sum_to_odd(a: Expr, b: Expr) -> Expr:
    """`a + b` of f64; the error is exact (Knuth)."""
    total = a + b
    back = total - a
    error = (a - (total - back)) + (b - back)
    lost = _differ(error, 0.0)
    return _odd(total, ((total < 0.0) ^ (error < 0.0)) & lost, lost)


def _differ(a: Expr, b: ExprLike) -> Expr:
    """Whether two numbers differ; no NaN does."""
    return (a < b) | (a > b)


def _odd(near: Expr, above: Expr, lost: Expr) -> Expr:
    """The neighbour towards 0 where `near` is above, then the sticky bit."""
    bits = Bitcast(_of(u32 if near.dtype.bits == 32 else u64, near), near)
    return Bitcast(near.dtype, (bits - above.cast(bits.dtype)) | lost.cast(bits.dtype))


def _double(expr: Expr) -> Expr:
    """An f64 of the same value."""
    return expr.cast(_of(f32, expr)).cast(_of(f64, expr))


def _word(half: Expr) -> Expr:
    """The bits of an f16 or bf16, in 32."""
    return Bitcast(_of(u16, half), half).cast(_of(u32, half))


def _bits(single: Expr) -> Expr:
    return Bitcast(_of(u32, single), single)


def _of(dtype: DType, like: Expr) -> DType:
    return dtype.vector(_count(like))


def _count(expr: Expr) -> int:
    return expr.dtype.lanes
