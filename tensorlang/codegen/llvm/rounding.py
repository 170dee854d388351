"""Rounding to odd, so that two roundings are as one (Boldo and Melquiond, 2008).

f16 and bf16 are reached through f32. What comes from f64, wide integers or an exact
sum is first rounded to odd: cut off, its last bit set where anything was lost.

f32 becomes bf16 in integers: the processors' own instruction takes the numbers below
2^-126, which bf16 has as f32 has them, for 0.
"""

from __future__ import annotations

from tensorlang.codegen.llvm import instructions as ins
from tensorlang.codegen.llvm.builder import Builder
from tensorlang.codegen.llvm.types import llvm_type, mangled, vector_literal
from tensorlang.ir.dtypes import DType, bf16, boolean, f32, f64, u16, u32, u64


def to_bf16(builder: Builder, lanes: int, near: str) -> str:
    """An f32 as bf16: half a last place is added, a little less below an even one.

    A carry out of the fraction goes on to the exponent, up to infinity. NaN would
    carry into the sign: it gives the quiet NaN of its sign.
    """
    kind, half = u32.vector(lanes), u16.vector(lanes)
    raw = _cast(builder, "bitcast", f32.vector(lanes), near, kind)
    odd = _integer(builder, "and", kind, _integer(builder, "lshr", kind, raw, 16), 1)
    moved = _integer(builder, "add", kind, raw, 0x7FFF)
    word = llvm_type(kind)
    rounded = builder.emit(ins.Binary(builder.name(), "add", word, moved, odd))
    sign = _integer(builder, "and", kind, raw, 0x80000000)
    quiet = _integer(builder, "or", kind, sign, 0x7FC00000)
    missing = _compare(builder, "fcmp uno", f32.vector(lanes), near, near)
    flag = llvm_type(boolean.vector(lanes))
    chosen = builder.emit(
        ins.Select(builder.name(), flag, missing, word, quiet, rounded)
    )
    bits = _upper_halves(builder, lanes, chosen)
    return _cast(builder, "bitcast", half, bits, bf16.vector(lanes))


def _upper_halves(builder: Builder, lanes: int, words: str) -> str:
    """The upper 16 of 32 bits: of vectors by one shuffle, for two registers at once."""
    kind = u32.vector(lanes)
    if lanes == 1:
        high = _integer(builder, "lshr", kind, words, 16)
        return _cast(builder, "trunc", kind, high, u16)
    halves = u16.vector(2 * lanes)
    pairs = _cast(builder, "bitcast", kind, words, halves)
    upper = range(1, 2 * lanes, 2)
    return builder.emit(
        ins.Shuffle(builder.name(), llvm_type(halves), pairs, "poison", upper)
    )


def narrow_to_odd(builder: Builder, lanes: int, wide: str) -> str:
    """An f64 as f32, rounded to odd."""
    near = _cast(builder, "fptrunc", f64.vector(lanes), wide, f32.vector(lanes))
    back = _cast(builder, "fpext", f32.vector(lanes), near, f64.vector(lanes))
    sizes = [_size(builder, lanes, text) for text in (back, wide)]
    above = _compare(builder, "fcmp ogt", f64.vector(lanes), *sizes)
    inexact = _compare(builder, "fcmp one", f64.vector(lanes), back, wide)
    return _odd(builder, f32.vector(lanes), u32.vector(lanes), near, above, inexact)


def sum_to_odd(builder: Builder, lanes: int, a: str, b: str) -> str:
    """`a + b` of f64, rounded to odd; the error is exact (Knuth)."""
    kind = f64.vector(lanes)
    total = _float(builder, "fadd", kind, a, b)
    back = _float(builder, "fsub", kind, total, a)
    rest = _float(builder, "fsub", kind, total, back)
    left = _float(builder, "fsub", kind, a, rest)
    right = _float(builder, "fsub", kind, b, back)
    error = _float(builder, "fadd", kind, left, right)
    zero = "zeroinitializer" if lanes > 1 else "0.0"
    inexact = _compare(builder, "fcmp one", kind, error, zero)
    signs = [_compare(builder, "fcmp olt", kind, x, zero) for x in (total, error)]
    flag = llvm_type(boolean.vector(lanes))
    differ = builder.emit(ins.Binary(builder.name(), "xor", flag, signs[0], signs[1]))
    above = builder.emit(ins.Binary(builder.name(), "and", flag, differ, inexact))
    return _odd(builder, kind, u64.vector(lanes), total, above, inexact)


def _odd(  # noqa: PLR0917 - what is known of one rounding
    builder: Builder, kind: DType, bits: DType, near: str, above: str, inexact: str
) -> str:
    """The neighbour towards zero where `near` is above, then the sticky bit."""
    flag = boolean.vector(kind.lanes)
    word = llvm_type(bits)
    raw = _cast(builder, "bitcast", kind, near, bits)
    less = _cast(builder, "zext", flag, above, bits)
    cut = builder.emit(ins.Binary(builder.name(), "sub", word, raw, less))
    sticky = _cast(builder, "zext", flag, inexact, bits)
    odd = builder.emit(ins.Binary(builder.name(), "or", word, cut, sticky))
    return _cast(builder, "bitcast", bits, odd, kind)


def _cast(builder: Builder, op: str, source: DType, text: str, target: DType) -> str:
    kinds = llvm_type(source), llvm_type(target)
    return builder.emit(ins.Cast(builder.name(), op, kinds[0], text, kinds[1]))


def _integer(builder: Builder, op: str, kind: DType, a: str, number: int) -> str:
    element = llvm_type(kind.scalar)
    b = vector_literal(element, [str(number)]) if kind.lanes > 1 else str(number)
    return builder.emit(ins.Binary(builder.name(), op, llvm_type(kind), a, b))


def _compare(builder: Builder, op: str, kind: DType, a: str, b: str) -> str:
    return builder.emit(ins.Compare(builder.name(), op, llvm_type(kind), a, b))


def _float(builder: Builder, op: str, kind: DType, a: str, b: str) -> str:
    return builder.emit(ins.Binary(builder.name(), op, llvm_type(kind), a, b))


def _size(builder: Builder, lanes: int, text: str) -> str:
    kind = f64.vector(lanes)
    name = f"llvm.fabs.{mangled(kind)}"
    return builder.call(name, llvm_type(kind), (llvm_type(kind), text))
