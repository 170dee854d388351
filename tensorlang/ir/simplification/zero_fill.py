"""Loads that are zero outside of their array, as bulk copies read it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tensorlang.ir import nodes as ir
from tensorlang.ir.integers.polynomials import ONE, Poly, poly
from tensorlang.ir.simplification.conditions import conjuncts
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.ir.visit import substitute


def filled(value: ir.Expr) -> ir.Load | None:
    """The load that a value copies, zero where that is outside of its array.

    `select(t >= 0 & t < n, x[min(max(t, 0), n - 1), j], 0)` is `x[t, j]`, whose outside
    is zero. None for any other value.
    """
    tests: list[ir.Expr] = []
    while isinstance(value, ir.Select) and simplify(value.b) == _zero(value):
        tests += conjuncts(value.cond)
        value = value.a
    if not isinstance(value, ir.Load):
        return None
    inside: list[Poly] = []  # positive where the load is inside
    clamped: list[Poly] = []  # those of them that the clamps hold
    indices = []
    for index, extent in zip(value.indices, value.buffer.shape, strict=True):
        at, ends = _unclamped(index, extent)
        lower, upper = poly(at).shifted(1), poly(extent) - poly(at)
        inside += lower, upper
        clamped += (end for end, held in zip((lower, upper), ends, strict=True) if held)
        indices.append(at)
    held = [*map(_positive, tests)]
    if not all(test is not None and _follows(test, inside) for test in held):
        return None
    given = [test for test in held if test is not None]
    if not all(_follows(end, given) for end in clamped):
        return None
    return replace(value, indices=tuple(indices))


def without_lets(stmt: ir.Stmt) -> ir.Stmt:
    """A statement with the values that others before it name in their places."""
    *before, last = stmt.stmts if isinstance(stmt, ir.Seq) else (stmt,)
    values: dict[ir.Var, ir.Expr] = {}
    for let in before:
        if not isinstance(let, ir.Let):
            return stmt
        values[let.var] = substitute(let.value, values)
    return substitute(last, values)


def _zero(value: ir.Expr) -> ir.Const:
    return ir.Const(0, value.dtype)


def _unclamped(index: ir.Expr, extent: ir.Expr) -> tuple[ir.Expr, tuple[bool, bool]]:
    """An index without its limits to an extent, and whether it had each of them."""
    lower = upper = False
    while isinstance(index, ir.Binary):
        match index:
            case ir.Binary(op="min", a=at, b=end) if end == simplify(extent - 1):
                index, upper = at, True
            case ir.Binary(op="max", a=at, b=ir.Const(value=0)):
                index, lower = at, True
            case _:
                break
    return index, (lower, upper)


def _positive(test: ir.Expr) -> Poly | None:
    """A number that is positive where a comparison holds; None for other tests."""
    match test:
        case ir.Compare(op="lt", a=a, b=b) | ir.Compare(op="gt", a=b, b=a):
            return poly(b) - poly(a)
        case ir.Compare(op="le", a=a, b=b) | ir.Compare(op="ge", a=b, b=a):
            return (poly(b) - poly(a)).shifted(1)
    return None


def _follows(number: Poly, others: Iterable[Poly]) -> bool:
    """Whether a number is positive where all others are, one of which is no larger."""
    more = (number - other for other in others)
    return any(all(m == ONE and c >= 0 for m, c in each.items()) for each in more)
