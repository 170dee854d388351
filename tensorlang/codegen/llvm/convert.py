"""Conversions between element types, by value."""

from __future__ import annotations

from typing import Final

from tensorlang.codegen.llvm import instructions as ins
from tensorlang.codegen.llvm.builder import Builder
from tensorlang.codegen.llvm.rounding import narrow_to_odd, sum_to_odd, to_bf16
from tensorlang.codegen.llvm.types import llvm_type, mangled, vector_literal
from tensorlang.ir.dtypes import DType

_NARROW: Final = ("f16", "bf16")


def cast(builder: Builder, source: DType, text: str, target: DType) -> str:
    """`text` of type `source` as `target`: floats to integers saturate."""
    if source == target:
        return text
    if target.is_bool:
        return _truth(builder, source, text)
    if source.is_float and not target.is_float:
        return _saturate(builder, source, text, target)
    if target.name in _NARROW and source.name not in (*_NARROW, "f32"):
        return _narrow(builder, source, text, target)
    opcode = _opcode(source, target)
    kinds = llvm_type(source), llvm_type(target)
    if opcode is None:
        return text
    if source.is_float and target.is_float and source.bits == target.bits:
        wide = DType("f32", source.lanes)  # f16 and bf16 meet in float
        return cast(builder, wide, cast(builder, source, text, wide), target)
    if opcode == "fptrunc" and target.name == "bf16":
        return to_bf16(builder, target.lanes, text)
    return builder.emit(ins.Cast(builder.name(), opcode, kinds[0], text, kinds[1]))


def _narrow(builder: Builder, source: DType, text: str, target: DType) -> str:
    """f64 or an integer to f16 or bf16, rounded once."""
    lanes = source.lanes
    single, double = DType("f32", lanes), DType("f64", lanes)
    if source.is_bool or (source.is_integer and source.bits <= 16):
        return cast(builder, single, cast(builder, source, text, single), target)
    if source.is_float:
        wide = text
    elif source.bits == 64:
        wide = _exact_sum(builder, source, text)
    else:
        wide = cast(builder, source, text, double)
    return cast(builder, single, narrow_to_odd(builder, lanes, wide), target)


def _exact_sum(builder: Builder, source: DType, text: str) -> str:
    """A 64-bit integer as f64 rounded to odd: both parts of it are exact."""
    kind, double = llvm_type(source), DType("f64", source.lanes)
    mask = vector_literal("i64", ["255"]) if source.lanes > 1 else "255"
    low = builder.emit(ins.Binary(builder.name(), "and", kind, text, mask))
    high = builder.emit(ins.Binary(builder.name(), "sub", kind, text, low))
    parts = [cast(builder, source, part, double) for part in (high, low)]
    return sum_to_odd(builder, source.lanes, parts[0], parts[1])


def _opcode(source: DType, target: DType) -> str | None:
    signed = source.kind == "int"
    if target.is_float:
        if source.is_float:
            return "fpext" if target.bits > source.bits else "fptrunc"
        return "sitofp" if signed else "uitofp"
    if source.is_bool:
        return "zext"
    if source.bits == target.bits:
        return None
    if target.bits < source.bits:
        return "trunc"
    return "sext" if signed else "zext"


def _truth(builder: Builder, source: DType, text: str) -> str:
    element = llvm_type(source.scalar)
    zero = "0.0" if source.is_float else "0"
    if source.name in ("f16", "bf16"):
        wide = DType("f32", source.lanes)
        return _truth(builder, wide, cast(builder, source, text, wide))
    if source.lanes > 1:
        zero = vector_literal(element, [zero])
    opcode = "fcmp une" if source.is_float else "icmp ne"
    name = builder.name()
    return builder.emit(ins.Compare(name, opcode, llvm_type(source), text, zero))


def _saturate(builder: Builder, source: DType, text: str, target: DType) -> str:
    if source.name in ("f16", "bf16"):
        wide = DType("f32", source.lanes)
        text, source = cast(builder, source, text, wide), wide
    sign = "s" if target.kind == "int" else "u"
    function = f"llvm.fpto{sign}i.sat.{mangled(target)}.{mangled(source)}"
    return builder.call(function, llvm_type(target), (llvm_type(source), text))
