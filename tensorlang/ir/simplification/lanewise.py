"""Recognise ramps by analysing a vector of indices lane by lane."""

from __future__ import annotations

from itertools import pairwise

from tensorlang.ir.dtypes import i64
from tensorlang.ir.integers.known import Known
from tensorlang.ir.integers.polynomials import Poly, poly
from tensorlang.ir.nodes import Binary, Const, Expr, Node, Ramp, Splat, as_expr
from tensorlang.ir.simplification.rules import Simplifier
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
    spread = _spread(expr, simplifier)
    if spread is not None:
        _, offsets = spread
        stride = offsets[1] - offsets[0]
        if any(b - a != stride for a, b in pairwise(offsets)):
            return expr
        return Ramp(simplifier.visit(_lane(expr, 0)), as_expr(stride), lanes)
    return _by_lanes(expr, simplifier)


def _by_lanes(expr: Expr, simplifier: Simplifier) -> Expr:
    """`as_ramp` by simplifying every lane."""
    base = simplifier.visit(_lane(expr, 0))
    first = poly(base)
    stride = (poly(simplifier.visit(_lane(expr, 1))) - first).value
    if stride is None:
        return expr
    for lane in range(2, expr.dtype.lanes):
        value = poly(simplifier.visit(_lane(expr, lane)))
        if value != first.shifted(stride * lane):
            return expr
    return Ramp(base, as_expr(stride), expr.dtype.lanes)


def _spread(expr: Expr, simplifier: Simplifier) -> tuple[Poly, list[int]] | None:
    """A vector as what all lanes have in common, and a number a lane added to it.

    A division takes the common part and the numbers apart if it divides the former.
    """
    lanes = expr.dtype.lanes
    match expr:
        case Splat(value=value):
            return poly(simplifier.visit(value)), [0] * lanes
        case Ramp(base=base, stride=stride):
            step = poly(simplifier.visit(stride)).value
            if step is None:
                return None
            offsets = [step * lane for lane in range(lanes)]
            return poly(simplifier.visit(base)), offsets
        case Binary(op="add" | "sub" as op):
            a, b = _spread(expr.a, simplifier), _spread(expr.b, simplifier)
            if a is None or b is None:
                return None
            sign = 1 if op == "add" else -1
            pairs = zip(a[1], b[1], strict=True)
            return a[0].plus(b[0], sign), [x + sign * y for x, y in pairs]
        case Binary(op="mul" | "floordiv" | "floormod", b=Splat(value=Const(value=by))):
            a = _spread(expr.a, simplifier)
            return None if a is None else _scaled(expr.op, *a, int(by), simplifier)
    return None


def _scaled(
    op: str, common: Poly, offsets: list[int], by: int, simplifier: Simplifier
) -> tuple[Poly, list[int]] | None:
    """The product with a number, or the quotient or remainder of a division by it."""
    if op == "mul":
        return common.scaled(by), [offset * by for offset in offsets]
    ends = common.shifted(min(offsets)), common.shifted(max(offsets))
    offsets = [common.constant + offset for offset in offsets]
    common = common.shifted(-common.constant)
    divides = by > 0 and not any(part % by for part in common.values())
    if not divides or not all(map(simplifier.known.fits, ends)):
        return None
    if op == "floormod":
        return Poly(), [offset % by for offset in offsets]
    quotient = Poly({term: part // by for term, part in common.items()})
    return quotient, [offset // by for offset in offsets]


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
