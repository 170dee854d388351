"""Functions in double precision, the reference for float kernels."""

from __future__ import annotations

import dataclasses

from tensorlang.ir import nodes as ir
from tensorlang.ir.dtypes import DType
from tensorlang.ir.visit import rebuild, rewriter, walk


def widened(func: ir.Function) -> ir.Function | None:
    """`func` with every float type replaced by f64; None if it uses bits of floats."""
    if any(isinstance(node, ir.Bitcast) for node in walk(func)):
        return None
    if not any(buffer.dtype.is_float for buffer in func.buffers):
        return None
    return rebuild(func, _visit)


def _wide(dtype: DType) -> DType:
    return DType("f64", dtype.lanes) if dtype.is_float else dtype


@rewriter
def _visit(node: ir.Node) -> ir.Node:
    if isinstance(node, ir.Const):
        return ir.Const(node.value, _wide(node.dtype))
    if isinstance(node, ir.Var):
        return ir.Var(node.name, _wide(node.dtype))
    if isinstance(node, ir.Buffer):
        return dataclasses.replace(node, dtype=_wide(node.dtype))
    if isinstance(node, (ir.Cast, ir.Call)):
        return _retyped(node)
    return rebuild(node, _visit)


def _retyped(node: ir.Cast | ir.Call) -> ir.Expr:
    if isinstance(node, ir.Cast):
        a, dtype = _visit(node.a), _wide(node.dtype)
        return a if a.dtype == dtype else ir.Cast(dtype, a)
    return ir.Call(node.name, tuple(map(_visit, node.args)), _wide(node.dtype))
