"""Functions in double precision, the reference for float kernels."""

from __future__ import annotations

import dataclasses

from tensorlang.ir.dtypes import DType
from tensorlang.ir.nodes import (
    Bitcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Function,
    Node,
    Var,
)
from tensorlang.ir.visit import rebuild, rewriter, walk


def widened(func: Function) -> Function | None:
    """`func` with every float type replaced by f64; None if it uses bits of floats."""
    if any(isinstance(node, Bitcast) for node in walk(func)):
        return None
    if not any(buffer.dtype.is_float for buffer in func.buffers):
        return None
    return rebuild(func, _visit)


def _wide(dtype: DType) -> DType:
    return DType("f64", dtype.lanes) if dtype.is_float else dtype


@rewriter
def _visit(node: Node) -> Node:
    if isinstance(node, Const):
        return Const(node.value, _wide(node.dtype))
    if isinstance(node, Var):
        return Var(node.name, _wide(node.dtype))
    if isinstance(node, Buffer):
        return dataclasses.replace(node, dtype=_wide(node.dtype))
    if isinstance(node, (Cast, Call)):
        return _retyped(node)
    return rebuild(node, _visit)


def _retyped(node: Cast | Call) -> Expr:
    if isinstance(node, Cast):
        a, dtype = _visit(node.a), _wide(node.dtype)
        return a if a.dtype == dtype else Cast(dtype, a)
    return Call(node.name, tuple(map(_visit, node.args)), _wide(node.dtype))
