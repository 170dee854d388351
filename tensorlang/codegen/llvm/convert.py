"""Conversions between element types by LLVM instructions."""

from __future__ import annotations

from tensorlang.codegen.llvm import instructions as ins
from tensorlang.codegen.llvm.arithmetic import compare, constant
from tensorlang.codegen.llvm.builder import Builder
from tensorlang.codegen.llvm.types import llvm_type, mangled
from tensorlang.ir.dtypes import DType, f32


def cast(builder: Builder, source: DType, text: str, target: DType) -> str:
    """Convert `text` from `source` to `target`; floats to integers saturate.

    Conversions of f16 other than from or to f32, and of bf16, are expanded before.
    """
    if source == target:
        return text
    if source.name == "f16":
        return _fenced(builder, target, _through_half(builder, source, text, target))
    if target.name == "f16":
        text = _fenced(builder, source, text)
        return _through_half(builder, source, text, target)
    if target.is_bool:
        return compare(builder, "ne", source, text, constant(source, 0))
    if source.is_float and not target.is_float:
        return _saturate(builder, source, text, target)
    opcode = _opcode(source, target)
    if opcode is None:
        return text
    return emit(builder, opcode, llvm_type(source), text, llvm_type(target))


def emit(builder: Builder, op: str, source: str, text: str, target: str) -> str:
    """One `Cast` instruction."""
    return builder.emit(ins.cast(builder.name(), op, source, text, target))


def upper_halves(builder: Builder, lanes: int, words: str) -> str:
    """The upper 16 bits of each 32-bit lane, as one shuffle."""
    halves = f"<{2 * lanes} x i16>"
    pairs = emit(builder, "bitcast", f"<{lanes} x i32>", words, halves)
    upper = range(1, 2 * lanes, 2)
    return builder.emit(ins.shuffle(builder.name(), halves, pairs, "poison", upper))


def _through_half(builder: Builder, source: DType, text: str, target: DType) -> str:
    """Convert between f32 and the bits of an f16 by the processor's instruction."""
    half = "half" if source.lanes == 1 else f"<{source.lanes} x half>"
    kinds = llvm_type(source), llvm_type(target)
    if source == f32.vector(source.lanes):
        rounded = emit(builder, "fptrunc", kinds[0], text, half)
        return emit(builder, "bitcast", half, rounded, kinds[1])
    number = emit(builder, "bitcast", kinds[0], text, half)
    return emit(builder, "fpext", half, number, kinds[1])


def _fenced(builder: Builder, dtype: DType, text: str) -> str:
    """A fence that keeps LLVM from emulating f16 arithmetic lane by lane."""
    if builder.module.target.has("f16 arithmetic"):
        return text
    kind = llvm_type(dtype)
    return builder.call(f"llvm.arithmetic.fence.{mangled(dtype)}", kind, (kind, text))


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


def _saturate(builder: Builder, source: DType, text: str, target: DType) -> str:
    sign = "s" if target.kind == "int" else "u"
    function = f"llvm.fpto{sign}i.sat.{mangled(target)}.{mangled(source)}"
    return builder.call(function, llvm_type(target), (llvm_type(source), text))
