"""Descriptions of an IR function: its signature, and its loop nests for people."""

from __future__ import annotations

from functools import singledispatch

from tensorlang.errors import CodegenError
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import blocks
from tensorlang.ir.visit import walk
from tensorlang.runtime.arrays.aliasing import safe_aliases
from tensorlang.runtime.signature import (
    OPERATIONS,
    BufferSpec,
    Dim,
    ScalarSpec,
    Signature,
)


def signature_of(func: ir.Function) -> Signature:
    """The signature of a function; CodegenError if a size is not known at launch."""
    buffers = tuple(_buffer_spec(param) for param in func.params)
    bound = {dim for buffer in buffers for dim in buffer.shape if isinstance(dim, str)}
    scalars = tuple(
        ScalarSpec(var.name, str(var.dtype), var.name in bound) for var in func.scalars
    )
    return Signature(func.name, buffers, scalars, safe_aliases(func))


def _buffer_spec(param: ir.Param) -> BufferSpec:
    buffer = param.buffer
    shape = tuple(dim_of(extent) for extent in buffer.shape)
    return BufferSpec(buffer.name, str(buffer.dtype), param.role, shape)


@singledispatch
def dim_of(expr: ir.Node) -> Dim:
    """A dimension's expression as plain data."""
    raise CodegenError(
        f"{expr} is not a valid dimension: use + - * // % min max of scalars"
    )


@dim_of.register
def _(expr: ir.Const) -> Dim:
    return int(expr.value)


@dim_of.register
def _(expr: ir.Var) -> Dim:
    return expr.name


@dim_of.register
def _(expr: ir.Binary) -> Dim:
    if expr.op not in OPERATIONS:
        return dim_of.dispatch(ir.Expr)(expr)
    return (expr.op, dim_of(expr.a), dim_of(expr.b))


def nests(func: ir.Function) -> tuple[str, ...]:
    """One line per outermost loop nest: its loops from outside in, then its blocks.

    `parallel i (n) > range j (512): pad, dense`
    """
    body = func.body.stmts if isinstance(func.body, ir.Seq) else (func.body,)
    return tuple(_nest(stmt) for stmt in body if isinstance(stmt, ir.For))


def _nest(loop: ir.For) -> str:
    lines = [_loop(node) for node in walk(loop) if isinstance(node, ir.For)]
    names = [block.name for block in blocks(loop)]
    return " > ".join(lines) + (f": {', '.join(names)}" if names else "")


def _loop(loop: ir.For) -> str:
    kind = {"serial": "range", "bound": loop.thread}.get(loop.kind, loop.kind)
    return f"{kind} {loop.var.name} ({loop.extent})"
