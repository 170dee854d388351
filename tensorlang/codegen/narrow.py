"""f16 and bf16 are storage formats: compute in f32, rounding after every operation.

    y[i] = a * b      ->      y[i] = cast(bf16, cast(f32, a) * cast(f32, b))

For sums, products, quotients and roots, rounding the f32 result equals rounding the
exact value, as f32 has more than twice the digits (Figueroa, 1995). Loads, stores,
selects, `fma` and casts remain on narrow types, each a function of the prelude.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tensorlang.ir import nodes as ir
from tensorlang.ir.collectives import is_collective
from tensorlang.ir.cpu_natives import TRANSPOSES
from tensorlang.ir.dtypes import DType, f32, f64
from tensorlang.ir.visit import rebuild, rewriter

NARROW: Final = ("f16", "bf16")
_BY_F64: Final = ("i32", "u32")


def widen_narrow(function: ir.Function) -> ir.Function:
    """The function without f16 and bf16 arithmetic, except `fma`."""
    return replace(function, body=_visit(function.body))


def widened(expr: ir.Expr) -> ir.Expr:
    """An expression without such arithmetic."""
    return _visit(expr)


@rewriter
def _visit(node: ir.Node) -> ir.Node:
    if isinstance(node, ir.Buffer):
        return node
    return computed_wide(rebuild(node, _visit))


@rewriter
def computed_wide(node: ir.Node) -> ir.Node:
    """An f16 or bf16 operation in f32, rounded; other nodes are unchanged."""
    match node:
        case ir.Unary() | ir.Binary() if _is_narrow(node):
            return _wide(node).cast(node.dtype)
        case ir.Compare(op=op, a=a, b=b) if _is_narrow(a):
            return ir.Compare(op, _up(a), _up(b))
        case ir.Call() if is_collective(node) or node.name in TRANSPOSES:
            return node
        case ir.Call(name=name, args=(first, *_)) if (
            _is_narrow(first) and name != "fma"
        ):
            args = tuple(_up(arg) for arg in node.args)
            return _back(ir.Call(name, args, f32.vector(first.dtype.lanes)), node)
        case ir.Cast(dtype=dtype, a=a):
            return _cast(dtype, a)
        case ir.LaneReduce(op=op, vector=vector) if _is_narrow(vector):
            return ir.LaneReduce(op, _up(vector)).cast(node.dtype)
    return node


def _is_narrow(expr: ir.Expr) -> bool:
    return expr.dtype.name in NARROW


def _wide(node: ir.Unary | ir.Binary) -> ir.Expr:
    if isinstance(node, ir.Unary):
        return ir.Unary(node.op, _up(node.a))
    return ir.Binary(node.op, _up(node.a), _up(node.b), node.contract)


def _back(made: ir.Call, node: ir.Call) -> ir.Expr:
    """Cast a wide call's result back, unless it is not a narrow float."""
    if node.dtype.name in NARROW:
        return made.cast(node.dtype)
    return replace(made, dtype=node.dtype)


def _up(expr: ir.Expr) -> ir.Expr:
    if not _is_narrow(expr):
        return expr
    match expr:
        case ir.Const(value=value):
            return ir.Const(value, f32)
        case ir.Splat(value=value, lanes=lanes):
            return ir.Splat(_up(value), lanes)
    return ir.Cast(f32.vector(expr.dtype.lanes), expr)


def _cast(dtype: DType, a: ir.Expr) -> ir.Expr:
    """A cast in steps, all of which but the last are exact."""
    if _is_narrow(a) and dtype.scalar not in (f32, a.dtype.scalar):
        return _cast(dtype, _up(a))
    if isinstance(a, ir.Const) and a.dtype.is_float and dtype.is_float:
        return ir.Const(a.value, dtype)
    if dtype.name in NARROW and not a.dtype.is_float:
        if a.dtype.bits <= 16:
            return ir.Cast(dtype, ir.Cast(f32.vector(dtype.lanes), a))
        if a.dtype.name in _BY_F64:
            return ir.Cast(dtype, ir.Cast(f64.vector(dtype.lanes), a))
    return ir.Cast(dtype, a) if dtype != a.dtype else a
