"""Recognise ramps by analysing a vector of indices lane by lane."""

from __future__ import annotations

from tensorlang.ir.dtypes import i64
from tensorlang.ir.integers.known import Known
from tensorlang.ir.integers.polynomials import poly
from tensorlang.ir.nodes import Binary, Const, Expr, Node, Ramp, Splat, as_expr
from tensorlang.ir.rules import Simplifier
from tensorlang.ir.visit import rebuild, walk


def as_ramp(expr: Expr, known: Known) -> Expr:
    """The vector as a ramp or splat if its lanes are evenly spaced; else unchanged.

    Some divisions of ramps are solved only here: `(4 * n + ramp(0, 1, 8) // 2) // 4` is
    `splat(n)`, which no rule on whole vectors finds.
    """
    lanes = expr.dtype.lanes
    if lanes == 1 or expr.dtype.scalar != i64 or not any(map(_unsolved, walk(expr))):
        return expr
    simplifier = Simplifier(known)
    values = [simplifier.visit(_lane(expr, lane)) for lane in range(lanes)]
    first = poly(values[0])
    stride = (poly(values[1]) - first).value
    if stride is None:
        return expr
    for lane, value in enumerate(values):
        if poly(value) != first.shifted(stride * lane):
            return expr
    return Ramp(values[0], as_expr(stride), lanes)


def _unsolved(node: Node) -> bool:
    """Whether it is a division of a vector that is neither a ramp nor a splat."""
    if not isinstance(node, Binary) or node.op not in ("floordiv", "floormod"):
        return False
    return node.dtype.lanes > 1 and not isinstance(node.a, (Ramp, Splat))


def _lane(expr: Expr, lane: int) -> Expr:
    """One lane of a vector of ramps, splats, constants and arithmetic on them."""
    match expr:
        case Splat(value=value):
            return value
        case Ramp(base=base, stride=stride):
            return base + stride * Const(lane, i64)
        case Binary():
            return Binary(
                expr.op, _lane(expr.a, lane), _lane(expr.b, lane), expr.contract
            )
    if expr.dtype.lanes == 1:
        return expr

    def child(node: Node) -> Node:
        return _lane(node, lane) if isinstance(node, Expr) else node

    return rebuild(expr, child)
