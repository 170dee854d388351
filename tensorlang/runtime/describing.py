"""The signature of an IR function: its shapes as data, and what may be in place."""

from __future__ import annotations

from functools import singledispatch

from tensorlang.errors import CodegenError
from tensorlang.ir.nodes import Binary, Const, Expr, Function, Node, Param, Var
from tensorlang.runtime.aliasing import safe_aliases
from tensorlang.runtime.signature import (
    OPERATIONS,
    BufferSpec,
    Dim,
    ScalarSpec,
    Signature,
)


def signature_of(func: Function) -> Signature:
    """The signature of an IR function.

    Raises:
        CodegenError: a dimension is computed in a way that no launch could.
    """
    buffers = tuple(_buffer_spec(param) for param in func.params)
    bound = {dim for buffer in buffers for dim in buffer.shape if isinstance(dim, str)}
    scalars = tuple(
        ScalarSpec(var.name, str(var.dtype), var.name in bound) for var in func.scalars
    )
    return Signature(func.name, buffers, scalars, safe_aliases(func))


def _buffer_spec(param: Param) -> BufferSpec:
    buffer = param.buffer
    shape = tuple(dim_of(extent) for extent in buffer.shape)
    return BufferSpec(buffer.name, str(buffer.dtype), param.role, shape)


@singledispatch
def dim_of(expr: Node) -> Dim:
    """A dimension's expression as data."""
    raise CodegenError(f"{expr} is no dimension: use + - * // % min max of scalars")


@dim_of.register
def _(expr: Const) -> Dim:
    return int(expr.value)


@dim_of.register
def _(expr: Var) -> Dim:
    return expr.name


@dim_of.register
def _(expr: Binary) -> Dim:
    if expr.op not in OPERATIONS:
        return dim_of.dispatch(Expr)(expr)
    return (expr.op, dim_of(expr.a), dim_of(expr.b))
