"""Rounding to odd, so that two roundings are as one (Boldo and Melquiond, 2008).

f16 and bf16 are reached through f32. What comes from f64, wide integers or an exact
sum is first rounded to odd: cut off, its last bit set where anything was lost.
"""

from __future__ import annotations

from tensorlang.codegen.llvm import instructions as ins
from tensorlang.codegen.llvm.builder import Builder
from tensorlang.codegen.llvm.types import llvm_type, mangled
from tensorlang.ir.dtypes import DType, boolean, f32, f64, u32, u64


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


def _compare(builder: Builder, op: str, kind: DType, a: str, b: str) -> str:
    return builder.emit(ins.Compare(builder.name(), op, llvm_type(kind), a, b))


def _float(builder: Builder, op: str, kind: DType, a: str, b: str) -> str:
    return builder.emit(ins.Binary(builder.name(), op, llvm_type(kind), a, b))


def _size(builder: Builder, lanes: int, text: str) -> str:
    kind = f64.vector(lanes)
    name = f"llvm.fabs.{mangled(kind)}"
    return builder.call(name, llvm_type(kind), (llvm_type(kind), text))
