"""Whether a nest covers every element of a tile, and which guards its block has.

After splits and fusions an axis is a mixed-radix number whose digits are loops: `i_0*32
+ i_1`, `f // 8`, `(f // 4) % 2`. Dense digits, each used once, cover every point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tensorlang.ir.conditions import conjuncts
from tensorlang.ir.contents import free_vars
from tensorlang.ir.nodes import Binary, Block, Compare, Const, Expr, Var
from tensorlang.scheduling.linear import Linear, divided, linear, number


@dataclass(frozen=True, slots=True)
class Bound:
    """A guard that says `axis < limit`."""

    axis: Var
    limit: Linear


def guards_of(block: Block) -> tuple[Expr, ...]:
    """The conjuncts of a block's `where`."""
    return () if block.where is None else tuple(conjuncts(block.where))


def bounds_of(block: Block, cond: Expr) -> tuple[Bound, ...]:
    """The guards `axis < limit` equivalent to `cond`, one per axis."""
    slack = _slack(cond)
    if slack is None:
        return ()
    found = (_bound(axis.var, linear(axis.value), slack) for axis in block.axes)
    return tuple(bound for bound in found if bound is not None)


def _bound(var: Var, value: Linear, slack: Linear) -> Bound | None:
    """`slack >= 0` solved for an axis, if of the form `limit - step*value >= 0`."""
    if not value.terms:
        return None
    (atom, weight), *_ = value.terms
    step, rest = divmod(-dict(slack.terms).get(atom, 0), weight)
    limit = slack + value.scaled(step)
    if rest or step < 1 or limit.vars & value.vars:
        return None
    return Bound(var, divided(limit, step).shifted(1))


def _slack(cond: Expr) -> Linear | None:
    """A form that is nonnegative exactly where the comparison holds."""
    match cond:
        case Compare(op="lt", a=a, b=b) | Compare(op="gt", a=b, b=a):
            return (linear(b) - linear(a)).shifted(-1)
        case Compare(op="le", a=a, b=b) | Compare(op="ge", a=b, b=a):
            return linear(b) - linear(a)
    return None


@dataclass(frozen=True, slots=True)
class _Digit:
    """`(loop // unit) % size`; the size of a leading digit may be symbolic (None)."""

    loop: Var
    unit: int
    size: int | None


def _digit(atom: Expr, loops: Mapping[Var, Linear]) -> _Digit | None:
    match atom:
        case Var():
            return _Digit(atom, 1, _size(loops[atom]))
        case Binary(op="floordiv", a=Var() as var, b=Const(value=unit)):
            return _Digit(var, int(unit), _size(divided(loops[var], int(unit))))
        case Binary(op="floormod", a=Var() as var, b=Const(value=size)):
            return _Digit(var, 1, int(size))
        case Binary(
            op="floormod",
            a=Binary(op="floordiv", a=Var() as var, b=Const(value=unit)),
            b=Const(value=size),
        ):
            return _Digit(var, int(unit), int(size))
    return None


def _size(extent: Linear) -> int | None:
    return extent.constant if extent.is_constant else None


def dense(values: Sequence[Linear], loops: Mapping[Var, Linear]) -> bool:
    """Whether the values together take every point of their box exactly once.

    Args:
        values: One form per axis; terms without a variable of `loops` only offset the
            box.
        loops: The extent of each running loop.
    """
    used: list[_Digit] = []
    if any(extent.vars & loops.keys() for extent in loops.values()):
        return False
    for value in values:
        terms = [(a, c) for a, c in value.terms if free_vars(a) & loops.keys()]
        digits = [(_digit(atom, loops), c) for atom, c in terms]
        if not _contiguous(digits):
            return False
        used.extend(digit for digit, _ in digits if digit)
    return all(
        _independent([d for d in used if d.loop == var], extent)
        for var, extent in loops.items()
        if any(d.loop == var for d in used)
    )


def first_only(var: Var, extent: Linear, values: Sequence[Linear]) -> bool:
    """Whether a loop is in its first iteration wherever all values are 0."""
    driven = [value for value in values if var in value.vars]
    if any(c < 0 for value in driven for _, c in value.terms):
        return False
    atoms = [
        [(a, c) for a, c in value.terms if var in free_vars(a)] for value in driven
    ]
    if any(atom == var for terms in atoms for atom, _ in terms):
        return True
    parts = [atom for terms in atoms for atom, _ in terms if isinstance(atom, Binary)]
    quotients = {atom.b for atom in parts if atom.a == var and atom.op == "floordiv"}
    rests = {atom.b for atom in parts if atom.a == var and atom.op == "floormod"}
    if quotients & rests:
        return True
    return dense([Linear(tuple(terms)) for terms in atoms], {var: extent})


def injective(values: Sequence[Linear], loops: Mapping[Var, Linear]) -> bool:
    """Whether the values differ between any two iterations of the loops."""
    left = {var for var in loops if loops[var] != number(1)}
    forms = [[(a, c) for a, c in v.terms if free_vars(a) & left] for v in values]
    determined = [form for form in forms if _determines_loops(form, loops)]
    found = {atom for form in determined for atom, _ in form}
    others = [Linear(tuple(form)) for form in forms if form not in determined]
    left -= found
    used = frozenset().union(*(value.vars for value in others))
    return not left or (
        left <= used and dense(others, {var: loops[var] for var in left})
    )


def _determines_loops(
    terms: Sequence[tuple[Expr, int]], loops: Mapping[Var, Linear]
) -> bool:
    """Whether a sum determines its loops: weights exceed the reach of smaller ones."""
    reach: int | None = 0
    for atom, weight in sorted(terms, key=lambda term: abs(term[1])):
        extent = loops.get(atom) if isinstance(atom, Var) else None
        if extent is None or reach is None or abs(weight) <= reach:
            return False
        size = _size(extent)
        reach = None if size is None else reach + abs(weight) * (size - 1)
    return True


def _contiguous(digits: Sequence[tuple[_Digit | None, int]]) -> bool:
    """Whether the digits' weights match their sizes: 1, size, size*size', ..."""

    def order(item: tuple[_Digit | None, int]) -> tuple[int, bool]:
        digit, coefficient = item
        return (
            coefficient,
            digit is None or digit.size != 1,
        )  # a digit of size 1 has no weight

    weight: int | None = 1
    for digit, coefficient in sorted(digits, key=order):
        if digit is None or coefficient != weight:
            return False
        weight = None if digit.size is None else weight * digit.size
    return True


def _independent(digits: Sequence[_Digit], extent: Linear) -> bool:
    """Whether digits of one loop take all combinations of values."""
    filled: int | None = 1
    for digit in sorted(digits, key=lambda d: d.unit):
        if digit.unit != filled:
            return False
        filled = None if digit.size is None else digit.unit * digit.size
    top = max(digit.unit for digit in digits)
    exact = divided(extent, top).scaled(top) == extent
    return exact and (filled is None or (filled > 0 and extent == number(filled)))
