"""Intervals of integer expressions and proofs of conditions, from ranges of variables.

Ranges are inclusive and may be expressions over other variables, such as `(0, n - 1)`
for a loop over n; None is bounded by the type only. As integers wrap, an interval, or a
difference that decides a comparison, is used only if it provably does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tensorlang.ir import nodes as ir
from tensorlang.ir.by_class import by_class
from tensorlang.ir.dtypes import i64
from tensorlang.ir.integers.intervals import Interval
from tensorlang.ir.integers.known import End, Known, Range, counted
from tensorlang.ir.integers.polynomials import Poly, poly
from tensorlang.ir.visit import holds, walk_statements

__all__ = [
    "End",
    "Known",
    "Range",
    "assume",
    "bounds",
    "counted",
    "decide",
    "prove",
    "ranges_in",
]

NEGATED: Final = {
    "lt": "ge",
    "ge": "lt",
    "le": "gt",
    "gt": "le",
    "eq": "ne",
    "ne": "eq",
}


def bounds(expr: ir.Expr, ranges: Mapping[ir.Var, Range] | None = None) -> Interval:
    """The inclusive bounds of an integer or bool expression, over all vector lanes.

    Without further knowledge these are the limits of the type.
    """
    return Known(ranges).interval(expr)


def prove(cond: ir.Expr, ranges: Mapping[ir.Var, Range] | None = None) -> bool | None:
    """Decide a condition: True or False if so for all values in the ranges, else None.

    A vector condition is decided only if all lanes agree.
    """
    return decide(cond, Known(ranges))


def ranges_in(body: ir.Node, sizes: Mapping[ir.Var, Range]) -> dict[ir.Var, Range]:
    """The ranges of all loop variables, axes and lets of a program, and of its sizes.

    A variable with several definitions is bounded by its type only.
    """
    found: dict[ir.Var, Range] = dict(sizes)
    for stmt in walk_statements(body):
        if isinstance(stmt, ir.Let) and not stmt.var.dtype.is_float:
            own: Range = stmt.value, stmt.value
            if found.setdefault(stmt.var, own) != own:
                found[stmt.var] = None, None
        for counting in _counting(stmt):
            own = counted(_blocks(counting))
            if (other := found.setdefault(counting.var, own)) != own:
                found[counting.var] = (0 if other[0] == 0 else None), None
    return found


def _counting(stmt: ir.Stmt) -> tuple[ir.For | ir.Axis, ...]:
    if isinstance(stmt, ir.For):
        return (stmt,)
    return stmt.axes if isinstance(stmt, ir.Block) else ()


def _blocks(counting: ir.For | ir.Axis) -> ir.Expr:
    """An extent; a launch computes it on the host, independently of the index type."""
    extent = counting.extent
    bound = isinstance(counting, ir.For) and counting.kind == "bound"
    return extent.a if bound and isinstance(extent, ir.Cast) else extent


@by_class
def decide(cond: ir.Expr, known: Known) -> bool | None:
    """`prove`, given an analysis."""
    del cond, known
    return None


@decide.register
def _(cond: ir.Const, _known: Known) -> bool | None:
    return bool(cond.value) if cond.dtype.is_bool else None


@decide.register
def _(cond: ir.Splat, known: Known) -> bool | None:
    return decide(cond.value, known)


@decide.register
def _(cond: ir.Unary, known: Known) -> bool | None:
    inner = decide(cond.a, known)
    return None if inner is None or cond.op != "not" else not inner


@decide.register
def _(cond: ir.Binary, known: Known) -> bool | None:
    if not cond.dtype.is_bool:
        return None
    a, b = decide(cond.a, known), decide(cond.b, known)
    if cond.op == "xor":
        return None if a is None or b is None else a != b
    absorbing = cond.op == "or"
    if absorbing in (a, b):
        return absorbing
    return None if a is None or b is None else not absorbing


def never_above(a: ir.Expr, b: ir.Expr, known: Known) -> bool:
    """Whether `a <= b` is proven, in all lanes; it is not asked whether it is false."""
    return _compared(ir.Compare("le", a, b), known, only=True) is True


@decide.register
def _(cond: ir.Compare, known: Known) -> bool | None:
    return _compared(cond, known)


def _compared(cond: ir.Compare, known: Known, *, only: bool = False) -> bool | None:
    """`decide`; if only a proof that it is true matters, not more than that."""
    kind = cond.a.dtype
    if kind.is_float:
        return None
    if kind.scalar == i64:
        left, right = _lanes(cond.a, known), _lanes(cond.b, known)
        differences = [b - a for a, b in zip(left, right, strict=False)]
        if differences and not any(differences):  # equal, even if both wrap
            return cond.op in ("eq", "le", "ge")
        if differences and all(map(known.fits, (*left, *right))):
            return _agreed(cond.op, differences, known, only=only)
    return _by_interval(cond.op, known.interval(cond.a), known.interval(cond.b))


def _lanes(expr: ir.Expr, known: Known) -> tuple[Poly, ...]:
    """A scalar, or both ends of a vector linear in the lane, otherwise nothing."""
    if expr.dtype.lanes == 1:
        return (known.polys[expr],)
    if isinstance(expr, ir.Splat):
        value = known.polys[expr.value]
        return value, value
    if isinstance(expr, ir.Ramp):
        first, step = known.polys[expr.base], known.polys[expr.stride]
        return first, first.plus(step, expr.lanes - 1)
    return ()


def _agreed(
    op: str, differences: list[Poly], known: Known, *, only: bool
) -> bool | None:
    """`0 op d`, if it has one result for all `d`, which are linear in the lane."""
    true, false = _SIGNS[op], _SIGNS[NEGATED[op]]
    if op in ("eq", "ne") and len(differences) > 1:
        return _same_in_all_lanes(op, differences, known)
    if all(true(d, known) for d in differences):
        return True
    if not only and all(false(d, known) for d in differences):
        return False
    return None


def _same_in_all_lanes(op: str, ends: list[Poly], known: Known) -> bool | None:
    if not any(ends):
        return op == "eq"
    if all(_above(d, known) for d in ends) or all(_below(d, known) for d in ends):
        return op == "ne"
    return None


def _above(d: Poly, known: Known) -> bool:
    return known.at_least_zero(d.shifted(-1))


def _below(d: Poly, known: Known) -> bool:
    return known.at_least_zero((-d).shifted(-1))


def _zero(d: Poly, known: Known) -> bool:
    return not d or (known.at_least_zero(d) and known.at_least_zero(-d))


_SIGNS: Final[dict[str, Callable[[Poly, Known], bool]]] = {
    "lt": _above,
    "gt": _below,
    "le": lambda d, known: known.at_least_zero(d),
    "ge": lambda d, known: known.at_least_zero(-d),
    "eq": _zero,
    "ne": lambda d, known: _above(d, known) or _below(d, known),
}


def _by_interval(op: str, a: Interval, b: Interval) -> bool | None:
    """Compare two integers by their intervals alone."""
    if op in ("gt", "ge"):
        return _by_interval({"gt": "lt", "ge": "le"}[op], b, a)
    if op == "ne":
        equal = _by_interval("eq", a, b)
        return None if equal is None else not equal
    (low_a, high_a), (low_b, high_b) = a, b
    if low_a is None or high_a is None or low_b is None or high_b is None:
        return None
    if op == "eq":
        if low_a == high_a == low_b == high_b:
            return True
        return False if high_a < low_b or high_b < low_a else None
    gap = 0 if op == "le" else 1
    if high_a + gap <= low_b:
        return True
    return False if low_a + gap > high_b else None


def assume(cond: ir.Expr, known: Known, holds: bool = True) -> Iterator[Poly]:
    """Polynomials that are nonnegative if `cond` is true (or false).

    Conditions that read memory are skipped, as a store may change it; so are those that
    may wrap.
    """
    if isinstance(cond, ir.Unary) and cond.op == "not":
        yield from assume(cond.a, known, not holds)
    elif isinstance(cond, ir.Binary) and cond.op == ("and" if holds else "or"):
        yield from assume(cond.a, known, holds)
        yield from assume(cond.b, known, holds)
    elif isinstance(cond, ir.Compare) and cond.a.dtype == i64 and not _reads(cond):
        op = cond.op if holds else NEGATED[cond.op]
        if known.exact(cond.a) and known.exact(cond.b):
            yield from _inequalities(op, poly(cond.b) - poly(cond.a))


def _reads(cond: ir.Expr) -> bool:
    return holds(cond, ir.Load)


def _inequalities(op: str, d: Poly) -> Iterator[Poly]:
    """`0 op d` as polynomials that are nonnegative."""
    back = -d
    if op == "lt":
        yield d.shifted(-1)
    elif op == "gt":
        yield back.shifted(-1)
    if op in ("le", "eq"):
        yield d
    if op in ("ge", "eq"):
        yield back
