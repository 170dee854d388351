"""Guards settled: dropped where they always hold, and turned into smaller loops.

After a loop was cut, the ranges of its halves often decide a guard: in the main part it
always holds, in the tail it bounds one loop. So a tail becomes a smaller tile, not a
full one with a test in its middle.
"""

from __future__ import annotations

from dataclasses import replace

from tensorlang.ir.nodes import (
    Block,
    Compare,
    Const,
    Expr,
    For,
    If,
    Seq,
    Stmt,
    Var,
    seq,
)
from tensorlang.scheduling.facts import conjunction, conjuncts
from tensorlang.scheduling.linear import Linear
from tensorlang.scheduling.slices import Extents, bounds, spread
from tensorlang.scheduling.tree import constant

NOTHING = Seq(())
_SENSE = {"lt": (1, 1), "le": (1, 0), "gt": (-1, 1), "ge": (-1, 0)}


def settle(condition: Expr, extents: Extents) -> bool | None:
    """Whether a condition always (True) or never (False) holds over loop ranges."""
    if isinstance(condition, Const):
        return bool(condition.value)
    found = _at_least(condition, extents)
    if found is None:
        return None
    form, least = found
    low, high = bounds(form, extents)
    if low >= least:
        return True
    return False if high < least else None


def _at_least(condition: Expr, extents: Extents) -> tuple[Linear, int] | None:
    """A comparison as `form >= least`, without loops that run once (they are 0)."""
    if not isinstance(condition, Compare) or not condition.a.dtype.is_integer:
        return None
    a, b = condition.a, condition.b
    if a.dtype.lanes != 1:
        return None
    sign, least = _SENSE.get(condition.op, (0, 0))
    if sign == 0:
        return None
    form = (spread(b, extents) - spread(a, extents)).scaled(sign)
    once = [(atom, c) for atom, c in form.terms if extents.get(atom) != 1]  # type: ignore[call-overload]
    return Linear(tuple(once), form.constant), least


def tidy(stmt: Stmt, extents: Extents) -> Stmt:
    """The statement with its guards settled and its loops cut down to them.

    Args:
        stmt: Any statement.
        extents: The constant extents of the loops around it (None: unknown).
    """
    match stmt:
        case Seq(stmts=stmts):
            return seq(*(tidy(part, extents) for part in stmts))
        case For():
            return _tidy_loop(stmt, extents)
        case Block(where=where) if where is not None:
            left = _unsettled(where, extents)
            return NOTHING if isinstance(left, bool) else replace(stmt, where=left)
        case If():
            return _tidy_if(stmt, extents)
    return stmt


def _unsettled(condition: Expr, extents: Extents) -> Expr | bool | None:
    """What is left to test: a condition, None for nothing, False for never."""
    left = []
    for part in conjuncts(condition):
        known = settle(part, extents)
        if known is False:
            return False
        if known is None:
            left.append(part)
    return conjunction(left)


def _tidy_if(stmt: If, extents: Extents) -> Stmt:
    then = tidy(stmt.then, extents)
    orelse = None if stmt.orelse is None else tidy(stmt.orelse, extents)
    left = _unsettled(stmt.cond, extents)
    if left is None:
        return then
    if isinstance(left, bool):
        return NOTHING if orelse is None else orelse
    cond = left if orelse is None else stmt.cond
    return NOTHING if then == NOTHING and orelse is None else If(cond, then, orelse)


def _tidy_loop(loop: For, extents: Extents) -> Stmt:
    size = constant(loop.extent)
    inside = {**extents, loop.var: size}
    body = tidy(loop.body, inside)
    limit = None if size is None else _limit(body, loop.var, inside)
    if size is not None and limit is not None and limit < size:
        size = max(limit, 0)
        body = tidy(body, {**extents, loop.var: size})
    if body == NOTHING or (size is not None and size <= 0):
        return NOTHING
    extent = loop.extent if size is None else Const(size, loop.var.dtype)
    return replace(loop, extent=extent, body=body)


def _limit(stmt: Stmt, var: Var, extents: Extents) -> int | None:
    """The value from which on the guards skip everything; None where they do not."""
    match stmt:
        case Seq(stmts=stmts) if stmts:
            limits = [_limit(part, var, extents) for part in stmts]
            known = [limit for limit in limits if limit is not None]
            return max(known) if len(known) == len(limits) else None
        case For(body=body, extent=extent, var=inner):
            return _limit(body, var, {**extents, inner: constant(extent)})
        case Block(where=where) if where is not None:
            tests = (_upper(part, var, extents) for part in conjuncts(where))
            return min((test for test in tests if test is not None), default=None)
    return None


def _upper(condition: Expr, var: Var, extents: Extents) -> int | None:
    """The value of `var` from which on a condition fails, if nothing else decides."""
    found = _at_least(condition, extents)
    if found is None or len(found[0].terms) != 1:
        return None
    (atom, coefficient), least = found[0].terms[0], found[1]
    if atom != var or coefficient >= 0:
        return None
    return (found[0].constant - least) // -coefficient + 1
