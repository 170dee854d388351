"""Flatten buffers: apply layouts, and index row-major memory with one i64 index.

    y[i, j] = ...          y: f32[n, 512]       ->      y[i * 512 + j] = ...

A layout's physical extents are its results at the largest indices, plus one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import Final

from tensorlang.codegen.folding import add, make, mul, product
from tensorlang.codegen.team import TEAM, TID
from tensorlang.errors import CodegenError
from tensorlang.ir import nodes as ir
from tensorlang.ir.integers.bounds import Known, ranges_in
from tensorlang.ir.integers.size_bounds import size_ranges
from tensorlang.ir.simplification.lanewise import as_ramp
from tensorlang.ir.visit import holds, rebuild, rewriter

REGISTER_BYTES: Final = 64
MOST_THREADS: Final = 1 << 12  # per team


def flatten(function: ir.Function) -> ir.Function:
    """The function with one-dimensional buffers and no layouts."""
    places: dict[ir.Buffer, tuple[ir.Buffer, tuple[ir.Expr, ...]]] = {}
    ranges = {TID: (0, MOST_THREADS), TEAM: (1, MOST_THREADS)}
    known = Known(ranges_in(function.body, {**ranges, **size_ranges(function)}))
    solved = cache(partial(as_ramp, known=known))  # copies have the same indices

    def place(buffer: ir.Buffer) -> tuple[ir.Buffer, tuple[ir.Expr, ...]]:
        if buffer not in places:
            shape = physical_shape(buffer)
            size = _whole_registers(buffer, product(shape))
            flat = replace(buffer, shape=(size,), layout=None)
            places[buffer] = flat, shape
        return places[buffer]

    @rewriter
    def visit(node: ir.Node) -> ir.Node:
        match node:
            case ir.Load() | ir.Store() | ir.AtomicUpdate():
                new = rebuild(node, visit)
                flat, shape = place(node.buffer)
                index = offset(node.buffer, new.indices, shape)
                if node.buffer.layout is not None:
                    index = solved(index)
                return replace(new, buffer=flat, indices=(index,))
            case ir.Alloc():
                return ir.Alloc(place(node.buffer)[0])
            case ir.Buffer():
                return node
            case ir.Expr() if not holds(node, ir.Load):
                return node
            case _:
                return rebuild(node, visit)

    params = tuple(
        ir.Param(place(param.buffer)[0], param.role) for param in function.params
    )
    return replace(function, params=params, body=visit(function.body))


def _whole_registers(buffer: ir.Buffer, size: ir.Expr) -> ir.Expr:
    """A tile's size, rounded up so that its last vector is full."""
    if buffer.scope not in ("register", "private") or not isinstance(size, ir.Const):
        return size
    lanes, count = REGISTER_BYTES // buffer.dtype.bytes, int(size.value)
    return size if count <= lanes else ir.Const(-(-count // lanes) * lanes, size.dtype)


def physical_shape(buffer: ir.Buffer) -> tuple[ir.Expr, ...]:
    """The extents of a buffer's memory, with its layout applied."""
    if buffer.layout is None:
        return buffer.shape
    last = {
        var: add(extent, ir.as_expr(-1))
        for var, extent in zip(buffer.layout.vars, buffer.shape, strict=True)
    }
    return tuple(
        add(_largest(buffer, result, last), ir.as_expr(1))
        for result in buffer.layout.results
    )


def _largest(
    buffer: ir.Buffer, result: ir.Expr, last: dict[ir.Var, ir.Expr]
) -> ir.Expr:
    """An upper bound of a layout's result; variables range over 0 .. last."""

    def visit(expr: ir.Expr) -> ir.Expr:
        match expr:
            case ir.Const():
                return expr
            case ir.Var():
                return last[expr]
            case ir.Binary(op="floormod", b=ir.Const(value=modulus)):
                whole = visit(expr.a)
                cut = int(modulus) - 1
                if isinstance(whole, ir.Const):
                    return ir.as_expr(min(cut, int(whole.value)))
                return ir.as_expr(cut)
            case ir.Binary(op="floordiv", b=ir.Const()):
                return make("floordiv", visit(expr.a), expr.b)
            case ir.Binary(op="sub"):
                return visit(expr.a)
            case ir.Binary(op="add" | "mul" | "max"):
                return make(expr.op, visit(expr.a), visit(expr.b))
            case ir.Binary(op="xor" | "or"):
                return _all_ones(visit(expr.a), visit(expr.b))
            case ir.Binary(op="and" | "min"):
                return visit(expr.b) if isinstance(expr.b, ir.Const) else visit(expr.a)
        raise CodegenError(f"{buffer.name}: no bound for the layout index {result}")

    return visit(result)


def _all_ones(a: ir.Expr, b: ir.Expr) -> ir.Expr:
    """The largest number of as many bits as either (sizes of swizzles are constant)."""
    if not isinstance(a, ir.Const) or not isinstance(b, ir.Const):
        return add(a, b)
    bits = max(int(a.value).bit_length(), int(b.value).bit_length())
    return ir.as_expr((1 << bits) - 1)


def offset(
    buffer: ir.Buffer, indices: tuple[ir.Expr, ...], shape: tuple[ir.Expr, ...]
) -> ir.Expr:
    """The row-major offset of the element at logical `indices`."""
    position: ir.Expr = ir.as_expr(0)
    physical = physical_indices(buffer, indices)
    for index, extent in zip(physical, shape, strict=True):
        position = add(*same_lanes(mul(*same_lanes(position, extent)), index))
    return position


def physical_indices(
    buffer: ir.Buffer, indices: tuple[ir.Expr, ...]
) -> tuple[ir.Expr, ...]:
    """The place in a buffer's memory of the element at logical `indices`."""
    if buffer.layout is None:
        return indices
    values = dict(zip(buffer.layout.vars, indices, strict=True))
    return tuple(_mapped(result, values) for result in buffer.layout.results)


def _mapped(result: ir.Expr, values: dict[ir.Var, ir.Expr]) -> ir.Expr:
    """A layout's result for logical indices, some of which may be vectors."""
    if isinstance(result, ir.Var):
        return values[result]
    if isinstance(result, ir.Binary):
        a, b = (_mapped(side, values) for side in (result.a, result.b))
        return ir.Binary(result.op, *same_lanes(a, b))
    return result


def same_lanes(a: ir.Expr, b: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
    """Two operands, the scalar one broadcast to the other's lanes."""
    lanes = max(a.dtype.lanes, b.dtype.lanes)
    return ir.splat(a, lanes), ir.splat(b, lanes)
