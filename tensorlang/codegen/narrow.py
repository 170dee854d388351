"""f16 and bf16 are storage formats: compute in f32, rounding after every operation.

    y[i] = a * b      ->      y[i] = cast(bf16, cast(f32, a) * cast(f32, b))

For sums, products, quotients and roots, rounding the f32 result equals rounding the
exact value, as f32 has more than twice the digits (Figueroa, 1995). Loads, stores,
selects, `fma` and casts remain on narrow types, each a function of the prelude.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tensorlang.ir.collectives import is_collective
from tensorlang.ir.dtypes import DType, f32, f64
from tensorlang.ir.nodes import (
    Binary,
    Buffer,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Function,
    LaneReduce,
    Node,
    Splat,
    Unary,
)
from tensorlang.ir.visit import rebuild, rewriter

NARROW: Final = ("f16", "bf16")
_BY_F64: Final = ("i32", "u32")


def widen_narrow(function: Function) -> Function:
    """The function without f16 and bf16 arithmetic, except `fma`."""
    return replace(function, body=_visit(function.body))


def widened(expr: Expr) -> Expr:
    """An expression without such arithmetic."""
    made: Expr = _visit(expr)
    return made


@rewriter
def _visit(node: Node) -> Node:
    if isinstance(node, Buffer):
        return node
    return computed_wide(rebuild(node, _visit))


@rewriter
def computed_wide(node: Node) -> Node:
    """An f16 or bf16 operation in f32, rounded; other nodes are unchanged."""
    match node:
        case Unary() | Binary() if _is_narrow(node):
            return _wide(node).cast(node.dtype)
        case Compare(op=op, a=a, b=b) if _is_narrow(a):
            return Compare(op, _up(a), _up(b))
        case Call() if is_collective(node):
            return node
        case Call(name=name, args=(first, *_)) if _is_narrow(first) and name != "fma":
            args = tuple(_up(arg) for arg in node.args)
            return _back(Call(name, args, f32.vector(first.dtype.lanes)), node)
        case Cast(dtype=dtype, a=a):
            return _cast(dtype, a)
        case LaneReduce(op=op, vector=vector) if _is_narrow(vector):
            return LaneReduce(op, _up(vector)).cast(node.dtype)
    return node


def _is_narrow(expr: Expr) -> bool:
    return expr.dtype.name in NARROW


def _wide(node: Unary | Binary) -> Expr:
    if isinstance(node, Unary):
        return Unary(node.op, _up(node.a))
    return Binary(node.op, _up(node.a), _up(node.b), node.contract)


def _back(made: Call, node: Call) -> Expr:
    """Cast a wide call's result back, unless it is not a narrow float."""
    if node.dtype.name in NARROW:
        return made.cast(node.dtype)
    return replace(made, dtype=node.dtype)


def _up(expr: Expr) -> Expr:
    if not _is_narrow(expr):
        return expr
    match expr:
        case Const(value=value):
            return Const(value, f32)
        case Splat(value=value, lanes=lanes):
            return Splat(_up(value), lanes)
    return Cast(f32.vector(expr.dtype.lanes), expr)


def _cast(dtype: DType, a: Expr) -> Expr:
    """A cast in steps, all of which but the last are exact."""
    if _is_narrow(a) and dtype.scalar not in (f32, a.dtype.scalar):
        return _cast(dtype, _up(a))
    if isinstance(a, Const) and a.dtype.is_float and dtype.is_float:
        return Const(a.value, dtype)
    if dtype.name in NARROW and not a.dtype.is_float:
        if a.dtype.bits <= 16:
            return Cast(dtype, Cast(f32.vector(dtype.lanes), a))
        if a.dtype.name in _BY_F64:
            return Cast(dtype, Cast(f64.vector(dtype.lanes), a))
    return Cast(dtype, a) if dtype != a.dtype else a
