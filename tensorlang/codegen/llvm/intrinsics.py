"""Emit calls of the IR's native intrinsics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tensorlang.codegen.llvm import instructions as ins
from tensorlang.codegen.llvm.arithmetic import compare, constant, simple
from tensorlang.codegen.llvm.builder import Builder
from tensorlang.codegen.llvm.types import llvm_type, mangled, vector_literal
from tensorlang.errors import CodegenError
from tensorlang.ir.dtypes import DType
from tensorlang.ir.nodes import Call

_FLOATS: Final = {
    "fma": "llvm.fma",
    "sqrt": "llvm.sqrt",
    "floor": "llvm.floor",
    "ceil": "llvm.ceil",
    "round": "llvm.rint",
    "trunc": "llvm.trunc",
    "copysign": "llvm.copysign",
}


def call(builder: Builder, expr: Call, args: list[str]) -> str:
    """The value of a native intrinsic on computed operands."""
    dtype = expr.args[0].dtype
    if expr.name in _FLOATS:
        return _float_call(builder, _FLOATS[expr.name], dtype, args)
    if expr.name in _OTHERS:
        return _OTHERS[expr.name](builder, dtype, args)
    raise CodegenError(f"LLVM code has no {expr.name!r}: it should have been expanded")


def _float_call(builder: Builder, function: str, dtype: DType, args: list[str]) -> str:
    kind = llvm_type(dtype)
    given = [(kind, arg) for arg in args]
    return builder.call(f"{function}.{mangled(dtype)}", kind, *given)


def _popcount(builder: Builder, dtype: DType, args: list[str]) -> str:
    kind = llvm_type(dtype)
    return builder.call(f"llvm.ctpop.{mangled(dtype)}", kind, (kind, args[0]))


def _clz(builder: Builder, dtype: DType, args: list[str]) -> str:
    kind = llvm_type(dtype)
    function = f"llvm.ctlz.{mangled(dtype)}"
    return builder.call(function, kind, (kind, args[0]), ("i1", "false"))


def _rotl(builder: Builder, dtype: DType, args: list[str]) -> str:
    kind, (a, amount) = llvm_type(dtype), args
    function = f"llvm.fshl.{mangled(dtype)}"
    return builder.call(function, kind, (kind, a), (kind, a), (kind, amount))


def _mulhi(builder: Builder, dtype: DType, args: list[str]) -> str:
    """The upper half of the product in twice the width."""
    kind = llvm_type(dtype)
    double = f"i{2 * dtype.bits}"
    wide = double if dtype.lanes == 1 else f"<{dtype.lanes} x {double}>"
    a, b = (
        builder.emit(ins.cast(builder.name(), "zext", kind, arg, wide)) for arg in args
    )
    product = builder.emit(ins.binary(builder.name(), "mul", wide, a, b))
    shift = str(dtype.bits)
    if dtype.lanes > 1:
        shift = vector_literal(double, [shift])
    high = builder.emit(ins.binary(builder.name(), "lshr", wide, product, shift))
    return builder.emit(ins.cast(builder.name(), "trunc", wide, high, kind))


def _check(builder: Builder, dtype: DType, args: list[str]) -> str:
    """Record a failed check's code in the routine's fault slot; the first one wins."""
    cond, code = args
    if dtype.lanes > 1:
        function = f"llvm.vector.reduce.and.{mangled(dtype)}"
        cond = builder.call(function, "i1", (llvm_type(dtype), cond))
    narrowed = code
    if code.startswith("%"):
        narrowed = builder.emit(ins.cast(builder.name(), "trunc", "i64", code, "i32"))
    if not builder.faults:
        builder.faults = builder.name("fault")
    old = builder.emit(ins.load(builder.name(), "i32", builder.faults, 4))
    fine = compare(builder, "ne", DType("i32"), old, constant(DType("i32"), 0))
    keep = simple(builder, "or", DType("bool"), cond, fine)
    new = builder.emit(ins.select(builder.name(), "i1", keep, "i32", old, narrowed))
    builder.emit(ins.store("i32", new, builder.faults, 4))
    return cond


_OTHERS: Final[dict[str, Callable[[Builder, DType, list[str]], str]]] = {
    "popcount": _popcount,
    "clz": _clz,
    "rotl": _rotl,
    "mulhi": _mulhi,
    "check": _check,
}
