"""Dot products as the arithmetic that they mean, for processors without them.

    c[...] = dpbusd(c[...], a0, a1, a2, a3, b0, b1, b2, b3)
->  c[...] = c[...] + cast(i32x16, a0) * cast(i32x16, b0) + ...

A build option of the tests: what is scheduled for another processor runs on this one,
with the same bits.
"""

from __future__ import annotations

from typing import Final

from tensorlang.instructions import DOT_PRODUCTS
from tensorlang.ir.dtypes import f32, f64
from tensorlang.ir.natives import native
from tensorlang.ir.nodes import Call, Const, Expr, Function, Node, Splat, select, unary
from tensorlang.ir.visit import transform

_TINY: Final = 2.0**-126 - 2.0**-151  # what rounds below it is subnormal


def by_meaning(function: Function) -> Function:
    """The function without dot product instructions, equal to it in every bit."""

    def change(node: Node) -> Node:
        if isinstance(node, Call) and node.name in DOT_PRODUCTS:
            sums, *factors = node.args
            half = len(factors) // 2
            add = {"f32": _of_floats, "i32": _of_bytes}[node.dtype.name]
            return add(sums, factors[:half], factors[half:])
        return node

    return transform(function, change)


def _of_bytes(sums: Expr, a: list[Expr], b: list[Expr]) -> Expr:
    for x, y in zip(a, b, strict=True):
        sums += x.cast(sums.dtype) * y.cast(sums.dtype)
    return sums


def _of_floats(sums: Expr, a: list[Expr], b: list[Expr]) -> Expr:
    """Fused steps, the last product first, that flush what is subnormal."""
    sums = flushed(sums)
    for x, y in reversed(list(zip(a, b, strict=True))):
        sums = fused(flushed(x.cast(sums.dtype)), flushed(y.cast(sums.dtype)), sums)
    return sums


def flushed(x: Expr) -> Expr:
    """0 of the same sign in place of a subnormal number."""
    tiny = _all(_TINY, x)
    return select(unary("abs", x) < tiny, native("copysign", _all(0.0, x), x), x)


def fused(a: Expr, b: Expr, c: Expr) -> Expr:
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
    size, tiny = unary("abs", total), _all(_TINY, total)
    outwards = native("copysign", _all(1.0, total), total) * lost
    subnormal = (size < tiny) | (size.equal(tiny) & (outwards < _all(0.0, total)))
    near = native("fma", a, b, c)
    return select(subnormal, native("copysign", _all(0.0, near), near), near)


def _all(value: float, like: Expr) -> Expr:
    scalar = Const(value, f64 if like.dtype.scalar == f64 else f32)
    lanes = like.dtype.lanes
    return Splat(scalar, lanes) if lanes > 1 else scalar
