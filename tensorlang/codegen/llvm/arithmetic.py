"""Arithmetic: tables of LLVM opcodes, and expansions where semantics differ.

Integer division rounds down and is defined for all operands: a zero divisor counts as
one. Shifts are defined for all amounts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tensorlang.codegen.llvm import instructions as ins
from tensorlang.codegen.llvm.builder import Builder
from tensorlang.codegen.llvm.types import literal, llvm_type, mangled, vector_literal
from tensorlang.ir.dtypes import DType
from tensorlang.ir.nodes import Const, Expr, Splat

_FLOAT: Final = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTEGER: Final = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "and": "and",
    "or": "or",
    "xor": "xor",
}
_ORDER: Final = ("eq", "ne", "lt", "le", "gt", "ge")
_PREDICATES: Final = {
    "float": dict(zip(_ORDER, ("oeq", "une", "olt", "ole", "ogt", "oge"), strict=True)),
    "int": dict(zip(_ORDER, ("eq", "ne", "slt", "sle", "sgt", "sge"), strict=True)),
    "uint": dict(zip(_ORDER, ("eq", "ne", "ult", "ule", "ugt", "uge"), strict=True)),
    "bool": dict(zip(_ORDER, ("eq", "ne", "ult", "ule", "ugt", "uge"), strict=True)),
}
_EXTREMES: Final = {
    ("float", "min"): "llvm.minnum",
    ("float", "max"): "llvm.maxnum",
    ("int", "min"): "llvm.smin",
    ("int", "max"): "llvm.smax",
    ("uint", "min"): "llvm.umin",
    ("uint", "max"): "llvm.umax",
}


def constant(dtype: DType, number: int) -> str:
    """An integer literal, splat over the lanes of `dtype`."""
    text = literal(Const(number, dtype.scalar))
    element = llvm_type(dtype.scalar)
    return text if dtype.lanes == 1 else vector_literal(element, [text])


def simple(builder: Builder, op: str, dtype: DType, a: str, b: str) -> str:
    """One `Binary` instruction."""
    return builder.emit(ins.binary(builder.name(), op, llvm_type(dtype), a, b))


def binary(  # noqa: PLR0917 - the operands of one operation
    builder: Builder, op: str, dtype: DType, a: str, b: str, right: Expr
) -> str:
    """`a op b`; `right` is the expression of `b`, to recognise constant divisors."""
    if op in ("min", "max"):
        function = f"{_EXTREMES[dtype.kind, op]}.{mangled(dtype)}"
        kind = llvm_type(dtype)
        return builder.call(function, kind, (kind, a), (kind, b))
    if op in ("floordiv", "floormod"):
        return _divide(builder, op, dtype, a, b, right)
    if op in ("shl", "shr"):
        return _shift(builder, op, dtype, a, b, right)
    return simple(builder, (_FLOAT if dtype.is_float else _INTEGER)[op], dtype, a, b)


def _shift(  # noqa: PLR0917 - the operands of one operation
    builder: Builder, op: str, dtype: DType, a: str, b: str, right: Expr
) -> str:
    """A shift; by the width or more, all bits become 0 or copies of the sign."""
    kind, by = llvm_type(dtype), literal_value(right)
    arithmetic = op == "shr" and dtype.kind == "int"
    inside = by is not None and 0 <= by < dtype.bits
    if arithmetic and not inside:
        most = constant(dtype, dtype.bits - 1)
        b = builder.call(f"llvm.umin.{mangled(dtype)}", kind, (kind, b), (kind, most))
    opcode = "ashr" if arithmetic else {"shl": "shl", "shr": "lshr"}[op]
    shifted = simple(builder, opcode, dtype, a, b)
    if arithmetic or inside:
        return shifted
    bits = DType(f"u{dtype.bits}", dtype.lanes)
    few = compare(builder, "lt", bits, b, constant(bits, dtype.bits))
    return choose(builder, dtype, few, shifted, constant(dtype, 0))


def choose(builder: Builder, dtype: DType, cond: str, yes: str, no: str) -> str:
    """`yes` in lanes where `cond` is true, else `no`."""
    kinds = llvm_type(DType("bool", dtype.lanes)), llvm_type(dtype)
    return builder.emit(ins.select(builder.name(), kinds[0], cond, kinds[1], yes, no))


def literal_value(right: Expr) -> int | None:
    """The integer that an expression is in all lanes; None if it is no constant."""
    inner = right.value if isinstance(right, Splat) else right
    return int(inner.value) if isinstance(inner, Const) else None


def _divide(  # noqa: PLR0917 - the operands of one division
    builder: Builder, op: str, dtype: DType, a: str, b: str, right: Expr
) -> str:
    """Floor division; shifts or masks if the divisor is a power of two."""
    divisor = literal_value(right) or None  # a divisor of 0 counts as one, too
    signed = dtype.kind == "int"
    if divisor is not None and divisor > 0 and divisor & (divisor - 1) == 0:
        if op == "floormod":
            return simple(builder, "and", dtype, a, constant(dtype, divisor - 1))
        shift = constant(dtype, divisor.bit_length() - 1)
        return simple(builder, "ashr" if signed else "lshr", dtype, a, shift)
    if divisor is None:
        b = _safe_divisor(builder, dtype, b)
    if not signed:
        opcode = "udiv" if op == "floordiv" else "urem"
        return simple(builder, opcode, dtype, a, b)
    if divisor == -1:
        zero = constant(dtype, 0)
        return zero if op == "floormod" else simple(builder, "sub", dtype, zero, a)
    return _signed_divide(builder, op, dtype, a, b, divisor)


def _safe_divisor(builder: Builder, dtype: DType, b: str) -> str:
    zero = compare(builder, "eq", dtype, b, constant(dtype, 0))
    return choose(builder, dtype, zero, constant(dtype, 1), b)


def _signed_divide(  # noqa: PLR0917 - the operands of one division
    builder: Builder, op: str, dtype: DType, a: str, b: str, divisor: int | None
) -> str:
    flag = llvm_type(DType("bool", dtype.lanes))
    zero = constant(dtype, 0)
    safe, minus = b, ""
    if divisor is None:  # the minimum divided by -1 traps
        minus = compare(builder, "eq", dtype, b, constant(dtype, -1))
        safe = choose(builder, dtype, minus, constant(dtype, 1), b)
    rest = simple(builder, "srem", dtype, a, safe)
    nonzero = compare(builder, "ne", dtype, rest, zero)
    signs = simple(builder, "xor", dtype, rest, safe)
    opposite = compare(builder, "lt", dtype, signs, zero)
    fix = builder.emit(ins.binary(builder.name(), "and", flag, nonzero, opposite))
    if op == "floormod":
        moved = simple(builder, "add", dtype, rest, safe)
        result = choose(builder, dtype, fix, moved, rest)
        return choose(builder, dtype, minus, zero, result) if minus else result
    quotient = simple(builder, "sdiv", dtype, a, safe)
    lower = simple(builder, "sub", dtype, quotient, constant(dtype, 1))
    result = choose(builder, dtype, fix, lower, quotient)
    if not minus:
        return result
    negated = simple(builder, "sub", dtype, zero, a)
    return choose(builder, dtype, minus, negated, result)


def compare(builder: Builder, op: str, dtype: DType, a: str, b: str) -> str:
    """A comparison; `ne` is true for NaN, the others are false."""
    opcode = "fcmp" if dtype.is_float else "icmp"
    predicate = _PREDICATES[dtype.kind][op]
    name = builder.name()
    return builder.emit(
        ins.binary(name, f"{opcode} {predicate}", llvm_type(dtype), a, b)
    )


def unary(builder: Builder, op: str, dtype: DType, a: str) -> str:
    """`neg`, `not` or `abs`; integers wrap."""
    kind = llvm_type(dtype)
    if op == "not":
        ones = "true" if dtype.is_bool else "-1"
        element = llvm_type(dtype.scalar)
        mask = ones if dtype.lanes == 1 else vector_literal(element, [ones])
        return simple(builder, "xor", dtype, a, mask)
    if dtype.is_float:
        if op == "neg":
            return builder.emit(ins.negate(builder.name(), kind, a))
        return builder.call(f"llvm.fabs.{mangled(dtype)}", kind, (kind, a))
    if op == "neg" or dtype.kind == "uint":
        return (
            simple(builder, "sub", dtype, constant(dtype, 0), a) if op == "neg" else a
        )
    function = f"llvm.abs.{mangled(dtype)}"
    return builder.call(function, kind, (kind, a), ("i1", "false"))


def take(builder: Builder, dtype: DType, vector: str, lanes: Sequence[int]) -> str:
    """Select lanes of a vector; a single one gives a scalar."""
    kind, name = llvm_type(dtype), builder.name()
    if len(lanes) == 1:
        return builder.emit(ins.extract(name, kind, vector, lanes[0]))
    return builder.emit(ins.shuffle(name, kind, vector, "poison", lanes))
