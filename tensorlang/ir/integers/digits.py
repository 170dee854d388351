"""Decide when two iterations can touch the same element, by the digits of loops.

Indices are linear in the *digits* of loop variables: after fusing, `f // 8` and `f % 8`
are two independent digits of `f`. Two iterations touch one element if in every
dimension

    sum of coefficient * (digit in one - digit in the other) + slack = 0

A digit whose coefficient outweighs the reach of all others must agree on both sides; so
must one too small to reach the next multiple of all others. Results are substituted
into all equations until a fixed point; and if `x // c` and `x % c` agree, so does `x`.
A loop whose digits all agree is *fixed*: different iterations never touch one element.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from math import gcd
from typing import Final, TypeAlias

from tensorlang.frozen import frozen
from tensorlang.ir.contents import free_vars
from tensorlang.ir.integers.indices import FAR, Extents, Slice, linear, slice_of, spread
from tensorlang.ir.integers.polynomials import Poly
from tensorlang.ir.nodes import Binary, Const, Expr, Load, Ramp, Var
from tensorlang.ir.visit import holds, variables

# A digit of a variable, by its weight; or an atom that is no slice of a variable.
Digit: TypeAlias = tuple[Var, int] | Expr
_Meeting: TypeAlias = tuple[Poly, Poly, int]  # a, b, their maximal distance
Cuts: TypeAlias = Mapping[Var, tuple[int, ...]]
_KEPT: Final = 1 << 12  # cached results: schedules repeat their queries


@frozen
class Equation:
    """`sum(coefficient * digit difference) + slack = 0`, slack in low..high."""

    terms: Mapping[Digit, int]
    low: int
    high: int


def fixed(
    pairs: Iterable[tuple[Expr, Expr]], extents: Extents
) -> frozenset[Var] | None:
    """The loops on which two iterations agree if each pair of indices is equal.

    Args:
        pairs: Per dimension, the index in one iteration and in the other.
        extents: The loops whose variables may differ; all other variables agree.

    Returns:
        The loops that must agree; None if the indices can never be equal.
    """
    given = tuple(pairs)
    used: set[Var] = set()
    for one, other in given:  # asked for every pair of accesses
        used |= variables(one)
        if other is not one:
            used |= variables(other)
    own = tuple((var, extent) for var, extent in extents.items() if var in used)
    agreed = _fixed(given, own)
    if agreed is None:
        return None
    once = (v for v, n in extents.items() if n is not None and n <= 1 and v not in used)
    return agreed.union(once)


@lru_cache(maxsize=_KEPT)
def _fixed(
    pairs: tuple[tuple[Expr, Expr], ...], extents: tuple[tuple[Var, int | None], ...]
) -> frozenset[Var] | None:
    found = _solved(pairs, dict(extents))
    if found is None:
        return None
    return frozenset(var for var, own in found.digits.items() if own <= found.zero)


def never_behind(
    points: Iterable[Expr],
    folded: Sequence[Expr],
    extents: Extents,
    around: Collection[Var] = (),
) -> frozenset[Var]:
    """The loops in which the first instance of a reduction is never after another one.

    Where all of `folded` are 0, so is every digit they consist of. A loop whose other
    digits agree at one point then has its minimum there: the first instance comes
    first, whatever the order of such loops.

    Args:
        points: The values of the axes that are not reduced, which identify a point.
        folded: The values of the reduced axes.
        extents: The loops whose variables may differ.
        around: The loops around these.
    """
    found = _solved([(point, point) for point in points], extents, folded)
    assert found is not None  # a point is always equal to itself
    loops = {*extents, *around}
    zero: set[Expr] = set()
    forms = [spread(value, extents) for value in folded]
    while forms:
        for form in forms:
            if form.constant == 0 and _counts_up(form, loops):
                zero.update(atom for atom, _ in form.terms)
        parts = _parts((Poly({(a,): 1 for a in zero}),), extents)
        forms = [
            whole
            for atom, whole in parts.items()
            if {Binary(op, atom.a, atom.b) for op in ("floordiv", "floormod")} <= zero
            and not {a for a, _ in whole.terms} <= zero
        ]
    least = set(found.zero)
    for atom in zero:
        part = slice_of(atom)
        if part is not None and part.var in found.cuts:
            least.update(digit for digit, _ in _covered(part, found.cuts[part.var]))
    return frozenset(var for var, own in found.digits.items() if own <= least)


def _counts_up(form: Poly, loops: Collection[Var]) -> bool:
    """Whether no term of a form is ever negative."""
    return all(c > 0 and _never_negative(atom, loops) for atom, c in form.terms)


def _never_negative(atom: Expr, loops: Collection[Var]) -> bool:
    match atom:
        case Var():
            return atom in loops
        case Binary(op="floormod", b=Const(value=size)):
            return size > 0
        case Binary(op="floordiv", a=a, b=Const(value=size)) if size > 0:
            form = linear(a)
            return form.constant >= 0 and _counts_up(form, loops)
    return False


@frozen
class _Solution:
    """The digits of each loop, and those on which two iterations must agree."""

    digits: Mapping[Var, set[Digit]]
    cuts: Cuts
    zero: set[Digit]


def _solved(
    pairs: Sequence[tuple[Expr, Expr]], extents: Extents, others: Iterable[Expr] = ()
) -> _Solution | None:
    """What follows from equal indices; `others` are split into the same digits.

    None if the indices can never be equal.
    """
    whole = [(a, b, 0) for a, b in _joined(pairs)]
    forms = [
        (spread(a, extents), spread(b, extents), reach)
        for a, b, reach in (*filter(None, map(_places, pairs)), *whole)
    ]
    parts = _parts((form for a, b, _ in forms for form in (a, b)), extents)
    seen = [*(form for a, b, _ in forms for form in (a, b)), *parts.values()]
    cuts = _cuts([*seen, *(spread(other, extents) for other in others)], extents)
    digits = {var: dict(_digits(var, cuts, extents)) for var in extents}
    spans = _Spans({d: span for each in digits.values() for d, span in each.items()})
    equations = [_equation(form, cuts, extents, spans) for form in forms]
    zero: set[Digit] = {digit for digit, span in spans.items() if span == 0}
    while _eliminate(equations, spans, zero):
        found = _wholes(parts, zero)
        if not found:
            return _Solution({var: set(own) for var, own in digits.items()}, cuts, zero)
        equations += [
            _equation((form, form, 0), cuts, extents, spans) for form in found
        ]
        parts |= _parts(found, extents)  # x // a is found from x // a // b
    return None


def _joined(pairs: Sequence[tuple[Expr, Expr]]) -> Iterator[tuple[Expr, Expr]]:
    """Pairs that are equal because their quotients and remainders are."""

    def divided(op: str) -> dict[tuple[Expr, Expr], tuple[Expr, Expr]]:
        return {
            (a.b, a.a): (a.a, b.a)
            for a, b in pairs
            if isinstance(a, Binary) and isinstance(b, Binary)
            if a.op == b.op == op and isinstance(a.b, Const) and a.b == b.b
        }

    quotients, remainders = divided("floordiv"), divided("floormod")
    for key, pair in quotients.items():
        if remainders.get(key) == pair:
            yield pair


def _parts(forms: Iterable[Poly], extents: Extents) -> dict[Binary, Poly]:
    """The dividends of the quotients and remainders in some forms."""
    return {
        atom: spread(atom.a, extents)
        for form in forms
        for atom, _ in form.terms
        if isinstance(atom, Binary) and atom.op in ("floordiv", "floormod")
    }


class _Spans(dict[Digit, int]):
    """The maximal difference of digits; of other atoms, as bounded by `%`."""

    def __missing__(self, digit: Digit) -> int:
        match digit:
            case Binary(op="floormod", b=Const(value=size)):
                return int(size) - 1
        return FAR


def _wholes(parts: dict[Binary, Poly], zero: set[Digit]) -> list[Poly]:
    """Every `x` whose `x // c` and `x % c` agree; each is returned once."""
    found = []
    for atom in [atom for atom in parts if atom in zero]:
        rest = Binary("floormod", atom.a, atom.b)
        if atom.op == "floordiv" and rest in zero:
            found.append(parts.pop(atom))
    return found


def _eliminate(
    equations: list[Equation], spans: Mapping[Digit, int], zero: set[Digit]
) -> bool:
    """Add to `zero` every digit that must agree; False if there is no solution."""
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


def _cuts(forms: Iterable[Poly], extents: Extents) -> dict[Var, tuple[int, ...]]:
    """The digit boundaries of each variable; none if its slices do not nest."""
    starts: dict[Var, set[int]] = {var: {1} for var in extents}
    for form in forms:
        for atom, _ in form.terms:
            part = slice_of(atom)
            if part is not None and part.var in starts:
                starts[part.var].update({part.start, part.start * (part.size or 1)})
    return {var: _nested(sorted(found)) for var, found in starts.items()}


def _nested(cuts: list[int]) -> tuple[int, ...]:
    nested = all(a and b % a == 0 for a, b in pairwise(cuts))
    return tuple(cuts) if nested else (1,)


def _digits(var: Var, cuts: Cuts, extents: Extents) -> Iterator[tuple[Digit, int]]:
    """The digits of a variable, each with its maximal difference."""
    extent = extents[var]
    places = cuts[var]
    for place, following in zip(places, (*places[1:], None), strict=True):
        span = FAR if extent is None else max(extent - 1, 0) // place
        if following is not None:
            span = min(span, following // place - 1)
        yield (var, place), span


def _expand(form: Poly, cuts: Cuts) -> dict[Digit, int]:
    """A form as coefficients of digits and other atoms."""
    digits: dict[Digit, int] = {}
    for atom, c in form.terms:
        part = slice_of(atom)
        covered = _covered(part, cuts[part.var]) if part and part.var in cuts else []
        for digit, factor in covered or [(atom, 1)]:
            digits[digit] = digits.get(digit, 0) + c * factor
    return digits


def _covered(part: Slice, places: tuple[int, ...]) -> list[tuple[Digit, int]]:
    """The digits that a slice consists of, with their factors; empty if it has none."""
    end = FAR if part.size is None else part.start * part.size
    if part.start not in places or (part.size is not None and end not in places):
        return []
    inside = [place for place in places if part.start <= place < end]
    return [((part.var, place), place // part.start) for place in inside]


def _places(pair: tuple[Expr, Expr]) -> tuple[Expr, Expr, int] | None:
    """Two indices as scalars, with their maximal distance if they are vectors."""
    scalars, reach = [], 0
    for index in pair:
        match index:
            case Ramp(base=base, stride=Const(value=stride), lanes=lanes):
                scalars.append(base)
                reach += abs(int(stride)) * (lanes - 1)
            case _ if index.dtype.lanes > 1:
                return None
            case _:
                scalars.append(index)
    return scalars[0], scalars[1], reach


def _equation(
    meeting: _Meeting, cuts: Cuts, extents: Extents, spans: Mapping[Digit, int]
) -> Equation:
    """`a` in one iteration is near `b` in another, as an equation of differences."""
    a, b, apart = meeting
    left, right = _expand(a, cuts), _expand(b, cuts)
    terms = {digit: c for digit, c in left.items() if c and right.get(digit) == c}
    low, high = (a.constant - b.constant + side for side in (-apart, apart))
    for side, sign in ((left, 1), (right, -1)):
        for digit, c in side.items():
            if digit in terms:
                continue
            reach = c * sign * spans[digit] if isinstance(digit, tuple) else FAR
            low, high = low + min(0, reach), high + max(0, reach)
            if not isinstance(digit, tuple):
                low = -FAR
    for digit in [digit for digit in terms if isinstance(digit, Expr)]:
        if holds(digit, Load):
            return Equation({}, -FAR, FAR)
        if not free_vars(digit) & extents.keys():
            del terms[digit]
    return Equation(terms, low, high)
