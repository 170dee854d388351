"""When do two iterations touch the same element? Only where some loops agree.

Indices are linear in the *digits* of loop variables: after fusing, `f // 8` and `f % 8`
are two digits of `f`, free of each other. Two iterations hit one element when in every
dimension

    sum of coefficient * (digit in one - digit in the other) + slack = 0

A digit whose coefficient outweighs all that the others can add up to must be the same
on both sides; so must one too small to reach the next multiple of all the others. What
is found goes back into all equations, until nothing new follows. A loop with all its
digits the same is *fixed*: different iterations of it never touch one element.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import gcd
from typing import TypeAlias

from tensorlang.ir.nodes import Expr, Load, Var
from tensorlang.ir.visit import free_vars, walk
from tensorlang.scheduling.linear import Linear
from tensorlang.scheduling.slices import (
    FAR,
    Extents,
    Slice,
    Weight,
    slice_of,
    spread,
)

Digit: TypeAlias = tuple[Var, Weight]  # a variable, and the weight the digit starts at
Cuts: TypeAlias = Mapping[Var, tuple[Weight, ...] | None]


@dataclass(frozen=True, slots=True)
class Equation:
    """`sum(coefficient * difference of the digit) + slack = 0`, slack in low..high."""

    terms: Mapping[Digit, int]
    low: int
    high: int


def fixed(
    pairs: Iterable[tuple[Expr, Expr]], extents: Extents
) -> frozenset[Var] | None:
    """The loops in which two iterations agree if each pair of indices is equal.

    Args:
        pairs: One pair a dimension: the index in one iteration, and in the other.
        extents: The loops whose variables may differ; every other variable is the same.

    Returns:
        The loops that must agree; None where the indices can never be equal.
    """
    forms = [
        (spread(a, extents), spread(b, extents))
        for a, b in pairs
        if a.dtype.lanes == b.dtype.lanes == 1
    ]
    cuts = _cuts([form for pair in forms for form in pair], extents)
    digits = {var: dict(_digits(var, cuts, extents)) for var in extents}
    spans = {d: span for parts in digits.values() for d, span in parts.items()}
    equations = [_equation(a, b, cuts, extents, spans) for a, b in forms]
    zero = {digit for digit, span in spans.items() if span == 0}
    if not _eliminate(equations, spans, zero):
        return None
    return frozenset(var for var, parts in digits.items() if zero.issuperset(parts))


def _eliminate(
    equations: list[Equation], spans: Mapping[Digit, int], zero: set[Digit]
) -> bool:
    """Add to `zero` every digit that must agree; False where nothing can be equal."""
    before = -1
    while before != len(zero):
        before = len(zero)
        for equation in equations:
            reach = {
                d: abs(c) * spans[d] for d, c in equation.terms.items() if d not in zero
            }
            total = sum(reach.values())
            if equation.low > total or equation.high < -total:
                return False
            slack = max(abs(equation.low), abs(equation.high))
            zero.update(d for d in reach if _agrees(d, equation, reach, slack))
    return True


def _agrees(
    digit: Digit, equation: Equation, reach: Mapping[Digit, int], slack: int
) -> bool:
    weight = abs(equation.terms[digit])
    if weight > sum(reach.values()) - reach[digit] + slack:
        return True
    others = gcd(*(equation.terms[d] for d in reach if d != digit))
    return slack == 0 and reach[digit] < others


def _cuts(
    forms: Iterable[Linear], extents: Extents
) -> dict[Var, tuple[Weight, ...] | None]:
    """Where each variable is cut into digits; None where its slices do not nest."""
    starts: dict[Var, set[Weight]] = {var: {1} for var in extents}
    for form in forms:
        for atom, _ in form.terms:
            part = slice_of(atom)
            if part is not None and part.var in starts:
                starts[part.var].update(_ends(part))
    return {var: _nested(found) for var, found in starts.items()}


def _ends(part: Slice) -> Iterator[Weight]:
    yield part.start
    if part.size is not None:
        yield part.size if part.start == 1 else part.start * part.size


def _nested(cuts: set[Weight]) -> tuple[Weight, ...] | None:
    symbols = [cut for cut in cuts if isinstance(cut, Expr)]
    if symbols:
        return (1, symbols[0]) if len(cuts) == 2 else None
    numbers = sorted(cut for cut in cuts if isinstance(cut, int))
    return tuple(numbers) if all(b % a == 0 for a, b in pairwise(numbers)) else None


def _digits(var: Var, cuts: Cuts, extents: Extents) -> Iterator[tuple[Digit, int]]:
    """The digits of a variable, each with the most by which it can differ."""
    extent = extents[var]
    places = cuts[var] or (1,)
    for place, following in zip(places, (*places[1:], None), strict=True):
        span = FAR
        if isinstance(place, int) and extent is not None:
            span = max(extent - 1, 0) // place
        if isinstance(place, int) and isinstance(following, int):
            span = min(span, following // place - 1)
        yield (var, place), span


def _expand(form: Linear, cuts: Cuts) -> tuple[dict[Digit, int], dict[Expr, int]]:
    """A form as coefficients of digits, and of the atoms that are none."""
    digits: dict[Digit, int] = {}
    others: dict[Expr, int] = {}
    for atom, c in form.terms:
        part = slice_of(atom)
        covered = _covered(part, cuts) if part else None
        if part is None or covered is None:
            others[atom] = others.get(atom, 0) + c
            continue
        for place, factor in covered:
            key = (part.var, place)
            digits[key] = digits.get(key, 0) + c * factor
    return digits, others


def _covered(part: Slice, cuts: Cuts) -> list[tuple[Weight, int]] | None:
    """The digits that a slice is made of, each with its factor in the slice."""
    places = cuts.get(part.var)
    if places is None:
        return None
    numbers = [place for place in places if isinstance(place, int)]
    if len(numbers) < len(places):
        whole = part.start == 1 and part.size is None
        return None if whole else [(part.start, 1)]
    if not isinstance(part.start, int) or isinstance(part.size, Expr):
        return None
    end = FAR if part.size is None else part.start * part.size
    return [(p, p // part.start) for p in numbers if part.start <= p < end]


def _equation(
    a: Linear, b: Linear, cuts: Cuts, extents: Extents, spans: Mapping[Digit, int]
) -> Equation:
    """`a` in one iteration equals `b` in another, as an equation of differences."""
    (left, left_rest), (right, right_rest) = _expand(a, cuts), _expand(b, cuts)
    low = high = a.constant - b.constant
    terms = {digit: c for digit, c in left.items() if c and right.get(digit) == c}
    for side, sign in ((left, 1), (right, -1)):
        for digit, c in side.items():
            if digit not in terms:
                reach = c * sign * spans[digit]
                low, high = low + min(0, reach), high + max(0, reach)
    if left_rest != right_rest or any(_varies(atom, extents) for atom in left_rest):
        low, high = -FAR, FAR
    return Equation(terms, low, high)


def _varies(atom: Expr, extents: Extents) -> bool:
    """Whether an atom may differ between two iterations: loads always may."""
    return bool(free_vars(atom) & extents.keys()) or any(
        isinstance(node, Load) for node in walk(atom)
    )
