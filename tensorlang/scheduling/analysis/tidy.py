"""Resolve guards: drop those that always hold, and turn others into shorter loops.

After a loop is partitioned, the ranges of its parts often decide a guard: it always
holds in the main part and bounds one loop in the tail. A tail thus becomes a smaller
tile instead of a full one with a test inside. Likewise, `select`, `min` and `max` whose
result is known in a part are replaced by it: what copies a padded array becomes a plain
copy where there is no padding.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars
from tensorlang.ir.dtypes import i64
from tensorlang.ir.integers.bounds import counted, prove
from tensorlang.ir.integers.indices import spread
from tensorlang.ir.integers.polynomials import Poly
from tensorlang.ir.simplification.conditions import conjunction, conjuncts
from tensorlang.ir.visit import rebuild, rewriter
from tensorlang.scheduling.analysis.facts import Ranges
from tensorlang.scheduling.analysis.tree import blocks_under, constant

NOTHING = ir.Seq(())
# a comparison of a and b holds iff sign * (b - a) >= the second number
_SENSE = {"lt": (1, 1), "le": (1, 0), "gt": (-1, 1), "ge": (-1, 0)}


def tidy(stmt: ir.Stmt, ranges: Ranges) -> ir.Stmt:
    """The statement with its guards resolved and its loops shortened accordingly.

    Args:
        ranges: The ranges of variables around it (see `facts.ranges_at`).
    """
    match stmt:
        case ir.Seq(stmts=stmts):
            return ir.seq(*(tidy(part, ranges) for part in stmts))
        case ir.For():
            return _tidy_loop(stmt, ranges)
        case ir.Block(where=where):
            left = None if where is None else _unsettled(where, ranges)
            if isinstance(left, bool):
                return NOTHING
            own = {axis.var: (axis.value, axis.value) for axis in stmt.axes}
            body = _settled(stmt.body, {**ranges, **own})
            return replace(stmt, where=left, body=body)
        case ir.If():
            return _tidy_if(stmt, ranges)
    return stmt


@rewriter
def _settled(node: ir.Node, ranges: Ranges) -> ir.Node:
    """The node with choices replaced by what they always give."""
    if isinstance(node, ir.Buffer):
        return node
    node = rebuild(node, partial(_settled, ranges=ranges))
    match node:
        case ir.Select(cond=cond, a=a, b=b):
            first = prove(cond, ranges)
        case ir.Binary(op="min" | "max" as op, a=a, b=b) if node.dtype == i64:
            first = prove(a <= b if op == "min" else a >= b, ranges)
        case _:
            return node
    return {True: a, False: b, None: node}[first]


def _unsettled(condition: ir.Expr, ranges: Ranges) -> ir.Expr | bool | None:
    """The remaining condition; None if it always holds, False if it never does."""
    left = []
    for part in conjuncts(condition):
        known = prove(part, ranges)
        if known is False:
            return False
        if known is None:
            left.append(part)
    return conjunction(left)


def _tidy_if(stmt: ir.If, ranges: Ranges) -> ir.Stmt:
    then = tidy(stmt.then, ranges)
    orelse = None if stmt.orelse is None else tidy(stmt.orelse, ranges)
    left = _unsettled(stmt.cond, ranges)
    if left is None:
        return then
    if isinstance(left, bool):
        return NOTHING if orelse is None else orelse
    if then == NOTHING and orelse is None:
        return NOTHING
    return ir.If(left if orelse is None else stmt.cond, then, orelse)


def _tidy_loop(loop: ir.For, ranges: Ranges) -> ir.Stmt:
    size = constant(loop.extent)
    if size is not None and size <= 0:
        return loop if _initializes(loop) else NOTHING
    inside = {**ranges, loop.var: counted(loop.extent)}
    body = tidy(loop.body, inside)
    limit = None if size is None else _limit(body, loop.var, inside)
    if size is not None and limit is not None and limit < size:
        size = max(limit, 0)
        body = tidy(body, {**ranges, loop.var: (0, size - 1)})
    if body == NOTHING or size == 0:
        return NOTHING
    extent = loop.extent if size is None else ir.Const(size, loop.var.dtype)
    return replace(loop, extent=extent, body=body)


def _initializes(loop: ir.For) -> bool:
    """Whether a loop drives a reduction, whose initial value is there without steps."""
    return any(
        axis.kind == "reduction" and loop.var in free_vars(axis.value)
        for block in blocks_under(loop)
        if block.init != NOTHING
        for axis in block.axes
    )


def _limit(stmt: ir.Stmt, var: ir.Var, ranges: Ranges) -> int | None:
    """The value from which on guards skip everything; None if they do not."""
    match stmt:
        case ir.Seq(stmts=stmts) if stmts:
            limits = [_limit(part, var, ranges) for part in stmts]
            known = [limit for limit in limits if limit is not None]
            return max(known) if len(known) == len(limits) else None
        case ir.For(body=body, extent=extent, var=inner):
            return _limit(body, var, {**ranges, inner: counted(extent)})
        case ir.Block(where=where) if where is not None:
            tests = (_upper(part, var, ranges) for part in conjuncts(where))
            return min((test for test in tests if test is not None), default=None)
    return None


def _upper(condition: ir.Expr, var: ir.Var, ranges: Ranges) -> int | None:
    """The value of `var` from which a condition fails, if nothing else decides it."""
    found = _at_least(condition, ranges)
    if found is None or len(found[0].terms) != 1:
        return None
    (atom, coefficient), least = found[0].terms[0], found[1]
    if atom != var or coefficient >= 0:
        return None
    return (found[0].constant - least) // -coefficient + 1


def _at_least(condition: ir.Expr, ranges: Ranges) -> tuple[Poly, int] | None:
    """A comparison as `form >= least`, dropping loops of extent 1, which are 0."""
    if not isinstance(condition, ir.Compare) or condition.a.dtype != i64:
        return None
    sign, least = _SENSE.get(condition.op, (0, 0))
    if sign == 0:
        return None
    extents = {
        v: r[1] + 1 if isinstance(r[1], int) else None for v, r in ranges.items()
    }
    a, b = spread(condition.a, extents), spread(condition.b, extents)
    form = (b - a).scaled(sign)
    once = {var for var, extent in extents.items() if extent == 1}
    left = form.only(lambda atom: atom not in once)
    return left.shifted(form.constant), least
