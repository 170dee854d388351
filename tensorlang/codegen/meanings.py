"""Dot and matrix products as what they mean, for processors without them.

    c[...] = dpbusd(c[...], a0, a1, a2, a3, b0, b1, b2, b3)
->  c[...] = c[...] + cast(i32x16, a0) * cast(i32x16, b0) + ...

A matrix product becomes loops over its rows and steps. A build option of the tests:
what is scheduled for another processor runs on this one, with the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from tensorlang.codegen.names import Names
from tensorlang.instructions import DOT_PRODUCTS, MATRIX_PRODUCTS, MatrixProduct
from tensorlang.ir import nodes as ir
from tensorlang.ir.dtypes import f32, f64, i64
from tensorlang.ir.natives import copysign, fma
from tensorlang.ir.visit import rebuild, transform

_TINY: Final = 2.0**-126 - 2.0**-151  # what rounds below it is subnormal


def by_meaning(function: ir.Function) -> ir.Function:
    """The function without dot and matrix products, equal to it in every bit."""
    names = Names(function)

    def change(node: ir.Node) -> ir.Node:
        match node:
            case ir.Call(name=name) if name in DOT_PRODUCTS:
                sums, *factors = node.args
                half = len(factors) // 2
                add = _of_bytes if node.dtype.is_integer else _of_floats
                return add(sums, factors[:half], factors[half:])
            case ir.Store(value=ir.Call(name=name)) if name in MATRIX_PRODUCTS:
                return _rows(node, MATRIX_PRODUCTS[name], names)
        return node

    return transform(function, change)


def _rows(stmt: ir.Store, row: MatrixProduct, names: Names) -> ir.Stmt:
    """A matrix product row by row."""
    call = stmt.value
    assert isinstance(call, ir.Call)
    sums, a, b = call.args
    m, s = names.var("m", i64), names.var("s", i64)
    place = m * row.lanes, 1, row.lanes
    held = ir.Store(stmt.buffer, tuple(lanes_of(i, *place) for i in stmt.indices), sums)
    first = [m * row.depth + s * row.group + p for p in range(row.group)]
    wide = row.lanes * row.group
    x = [ir.Splat(lanes_of(a, at, 1, 1), row.lanes) for at in first]
    y = [lanes_of(b, s * wide + p, row.group, row.lanes) for p in range(row.group)]
    old = lanes_of(sums, *place)
    if call.dtype.is_integer:
        body: ir.Stmt = _each(s, row, replace(held, value=_of_bytes(old, x, y)))
    else:
        body = _floats(replace(held, value=old), _Steps(row, s, x, y), names)
    return ir.For(m, ir.whole(call.dtype.lanes // row.lanes, i64), "serial", body)


def _each(s: ir.Var, row: MatrixProduct, body: ir.Stmt) -> ir.Stmt:
    return ir.For(s, ir.whole(row.steps, i64), "serial", body)


class _Steps(NamedTuple):
    """The factors `x` and `y` of the products that step `s` adds to a row of sums."""

    row: MatrixProduct
    s: ir.Var
    x: Sequence[ir.Expr]
    y: Sequence[ir.Expr]


def _floats(held: ir.Store, steps: _Steps, names: Names) -> ir.Stmt:
    """A row of sums, plus the even products and the odd ones added up apart."""
    count = steps.row.lanes
    lanes = (ir.ramp(ir.as_expr(0), count),)
    zero, one = (ir.Splat(ir.Const(value, f32), count) for value in (0.0, 1.0))
    start: list[ir.Stmt] = []
    adding: list[ir.Stmt] = []
    parts: list[ir.Expr] = []
    for a, b in zip(steps.x, steps.y, strict=True):
        part = ir.Buffer(names.fresh("apart"), f32, (ir.whole(count, i64),), "register")
        x, y, old = (names.var(name, f32.vector(count)) for name in ("x", "y", "old"))
        start += [ir.Alloc(part), ir.Store(part, lanes, zero)]
        parts.append(ir.Load(part, lanes))
        adding += [ir.Let(x, _float(a)), ir.Let(y, _float(b)), ir.Let(old, parts[-1])]
        adding.append(ir.Store(part, lanes, fused(x, y, old)))
    both, last = (names.var(name, f32.vector(count)) for name in ("both", "old"))
    return ir.seq(
        *start,
        _each(steps.s, steps.row, ir.seq(*adding)),
        ir.Let(last, held.value),
        ir.Let(both, fused(one, *parts)),
        replace(held, value=fused(one, both, flushed(last))),
    )


def lanes_of(expr: ir.Expr, start: ir.Expr, step: int, count: int) -> ir.Expr:
    """The lanes `start`, `start + step`, ... of a vector of loads and indices."""
    match expr:
        case ir.Splat(value=value):
            return ir.Splat(value, count) if count > 1 else value
        case ir.Ramp(base=base, stride=stride):
            first = base + start * stride
            return ir.Ramp(first, stride * step, count) if count > 1 else first
    if expr.dtype.lanes == 1:
        return expr

    def child(node: ir.Node) -> ir.Node:
        return lanes_of(node, start, step, count) if isinstance(node, ir.Expr) else node

    return rebuild(expr, child)


def _of_bytes(sums: ir.Expr, a: Sequence[ir.Expr], b: Sequence[ir.Expr]) -> ir.Expr:
    for x, y in zip(a, b, strict=True):
        sums += x.cast(sums.dtype) * y.cast(sums.dtype)
    return sums


def _of_floats(sums: ir.Expr, a: Sequence[ir.Expr], b: Sequence[ir.Expr]) -> ir.Expr:
    """Fused steps, the last product first, that flush what is subnormal."""
    sums = flushed(sums)
    for x, y in reversed(list(zip(a, b, strict=True))):
        sums = fused(_float(x), _float(y), sums)
    return sums


def _float(x: ir.Expr) -> ir.Expr:
    return flushed(x.cast(f32.vector(x.dtype.lanes)))


def flushed(x: ir.Expr) -> ir.Expr:
    """0 of the same sign in place of a subnormal number."""
    tiny = _all(_TINY, x)
    return ir.select(ir.unary("abs", x) < tiny, copysign(_all(0.0, x), x), x)


def fused(a: ir.Expr, b: ir.Expr, c: ir.Expr) -> ir.Expr:
    """`a * b + c` rounded once; 0 if it is subnormal in the normal precision.

    The sum's distance from the limit shows in f64: where the rounded sum is the limit
    itself, what rounding took away decides.
    """
    lanes = c.dtype.lanes
    wide = f64.vector(lanes)
    product, other = a.cast(wide) * b.cast(wide), c.cast(wide)
    total = product + other
    part = total - product
    lost = (product - (total - part)) + (other - part)
    size, tiny = ir.unary("abs", total), _all(_TINY, total)
    outwards = copysign(_all(1.0, total), total) * lost
    subnormal = (size < tiny) | (size.equal(tiny) & (outwards < _all(0.0, total)))
    near = fma(a, b, c)
    return ir.select(subnormal, copysign(_all(0.0, near), near), near)


def _all(value: float, like: ir.Expr) -> ir.Expr:
    scalar = ir.Const(value, f64 if like.dtype.scalar == f64 else f32)
    lanes = like.dtype.lanes
    return ir.Splat(scalar, lanes) if lanes > 1 else scalar
