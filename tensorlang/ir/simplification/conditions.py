"""Conditions: normal form of comparisons, and Boolean algebra."""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd
from typing import Final

from tensorlang.ir.dtypes import boolean, i64
from tensorlang.ir.integers.bounds import NEGATED, assume, decide
from tensorlang.ir.integers.known import Known
from tensorlang.ir.integers.polynomials import Poly, number
from tensorlang.ir.nodes import Binary, Compare, Const, Expr, Unary, splat
from tensorlang.ir.simplification.folding import constant_of

_MIRRORED: Final = {"lt": "gt", "le": "ge", "eq": "eq", "ne": "ne"}
_MOST_PARTS: Final = 16  # longer conjunctions are not checked for implied parts


def truth(value: bool, lanes: int = 1) -> Expr:
    """True or false, in all lanes."""
    return splat(Const(value, boolean), lanes)


def comparison(cond: Compare, known: Known) -> Expr | None:
    """A simpler form of a comparison of integers, or None."""
    decided = decide(cond, known)
    if decided is not None:
        return truth(decided, cond.dtype.lanes)
    if cond.a == cond.b and not cond.a.dtype.is_float:
        return truth(cond.op in ("eq", "le", "ge"), cond.dtype.lanes)
    if cond.a.dtype != i64 or not (known.exact(cond.a) and known.exact(cond.b)):
        return None
    op, difference = cond.op, known.polys[cond.b] - known.polys[cond.a]
    if op in ("gt", "le"):  # 0 > d is -d > 0, so 0 < -d; 0 <= d is 0 < d + 1
        op, difference = "lt", -difference if op == "gt" else difference.shifted(1)
    elif op == "ge":  # 0 >= d is 0 < 1 - d
        op, difference = "lt", number(1) - difference
    return _arranged(op, difference, cond, known)


def _arranged(op: str, d: Poly, cond: Compare, known: Known) -> Expr | None:
    """`0 op d` with positive terms on both sides, divided by their common factor."""
    step = 0
    for monomial, coefficient in d.items():
        if monomial:
            step = gcd(step, coefficient)
    rest = d.constant
    if op in ("eq", "ne") and rest % step:
        return truth(op == "ne")
    if step > 1:  # 0 < s*t + c is 0 < t + ceil(c / s)
        d = Poly({m: c // step for m, c in d.items() if m}).shifted(-(-rest // step))
    right = Poly({m: c for m, c in d.items() if c > 0})
    left = Poly({m: -c for m, c in d.items() if c < 0})
    if op == "lt" and right.constant == 1 and (len(right) > 1 or left):
        op, right = "le", right.shifted(-1)
    if not known.fits(left) or not known.fits(right):
        return None
    bare = not any(left) and any(right)  # constants go to the right
    if bare or cond.op in ("gt", "ge"):
        return Compare(_MIRRORED[op], right.expr(), left.expr())
    return Compare(op, left.expr(), right.expr())


def negation(inner: Expr) -> Expr | None:
    """A simpler form of `not inner`, or None. NaN forbids negating float orders."""
    const = constant_of(inner)
    if const is not None:
        return truth(not const.value, inner.dtype.lanes)
    if isinstance(inner, Unary) and inner.op == "not":
        return inner.a
    if isinstance(inner, Compare) and (
        not inner.a.dtype.is_float or inner.op in ("eq", "ne")
    ):
        return Compare(NEGATED[inner.op], inner.a, inner.b)
    return None


def parts_of(op: str, cond: Expr) -> list[Expr]:
    """The operands of nested `op`s, in order."""
    if isinstance(cond, Binary) and cond.op == op and cond.dtype.is_bool:
        return parts_of(op, cond.a) + parts_of(op, cond.b)
    return [cond]


def conjuncts(cond: Expr | None) -> list[Expr]:
    """The parts of `a & b & c`; none of None."""
    return [] if cond is None else parts_of("and", cond)


def conjunction(parts: Iterable[Expr]) -> Expr | None:
    """`a & b & c`; None without parts."""
    given = [*parts]
    return joined("and", given) if given else None


def junction(cond: Binary, known: Known) -> Expr | None:
    """A simpler form of a conjunction or disjunction, or None."""
    op, lanes = cond.op, cond.dtype.lanes
    absorbing = op == "or"
    given = parts_of(op, cond)
    kept: list[Expr] = []
    for part in dict.fromkeys(given):
        decided = decide(part, known)
        if decided == absorbing:
            return truth(absorbing, lanes)
        if decided is None:
            kept.append(part)
    if any(negation(part) in kept for part in kept):
        return truth(absorbing, lanes)
    if lanes == 1 and len(kept) <= _MOST_PARTS:
        found = _without_implied(op, kept, known)
        if found is None:
            return truth(absorbing, lanes)
        kept = found
    if len(kept) == len(given):
        return None
    return joined(op, kept, lanes)


def joined(op: str, parts: list[Expr], lanes: int = 1) -> Expr:
    """The parts joined by `op`, left to right; its neutral element if none."""
    if not parts:
        return truth(op == "and", lanes)
    total = parts[0]
    for part in parts[1:]:
        total = Binary(op, total, part)
    return total


def _without_implied(op: str, parts: list[Expr], known: Known) -> list[Expr] | None:
    """The parts not implied by the others; None if they decide the whole.

    Under `and`, a part implied by the others is dropped, and one that contradicts them
    makes the whole false; under `or`, the others are assumed false instead.
    """
    kept = list(parts)
    for part in reversed(parts):
        facts = tuple(
            fact
            for other in kept
            if other is not part
            for fact in assume(other, known, holds=op == "and")
        )
        if not facts:
            continue
        decided = decide(part, known.inside({}, facts))
        if decided == (op == "or"):
            return None
        if decided is not None:
            kept = [other for other in kept if other is not part]
    return kept
