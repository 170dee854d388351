"""Whether a nest covers every element of a tile, and which guards its block has.

After splits and fusions an axis is a mixed-radix number whose digits are loops: `i_0*32
+ i_1`, `f // 8`, `(f // 4) % 2`. Dense digits, each used once, cover every point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tensorlang.frozen import frozen
from tensorlang.ir.contents import free_vars
from tensorlang.ir.integers.indices import Slice, divided, linear, slice_of
from tensorlang.ir.integers.polynomials import Poly, number
from tensorlang.ir.nodes import Binary, Block, Compare, Expr, Var
from tensorlang.ir.simplification.conditions import conjuncts


@frozen
class Bound:
    """A guard that says `axis < limit`."""

    axis: Var
    limit: Poly


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


def _bound(var: Var, value: Poly, slack: Poly) -> Bound | None:
    """`slack >= 0` solved for an axis, if of the form `limit - step*value >= 0`."""
    if value.is_constant:
        return None
    monomial, weight = next(item for item in value.items() if item[0])
    step, rest = divmod(-slack.get(monomial, 0), weight)
    limit = slack + value.scaled(step)
    if rest or step < 1 or limit.vars & value.vars:
        return None
    return Bound(var, divided(limit, step).shifted(1))


def _slack(cond: Expr) -> Poly | None:
    """A form that is nonnegative exactly where the comparison holds."""
    match cond:
        case Compare(op="lt", a=a, b=b) | Compare(op="gt", a=b, b=a):
            return (linear(b) - linear(a)).shifted(-1)
        case Compare(op="le", a=a, b=b) | Compare(op="ge", a=b, b=a):
            return linear(b) - linear(a)
    return None


def _digit(atom: Expr, loops: Mapping[Var, Poly]) -> Slice | None:
    """A digit of a loop, of known size; that of a leading digit may be symbolic."""
    digit = slice_of(atom)
    if digit is None or digit.size is not None:
        return digit
    return replace(digit, size=divided(loops[digit.var], digit.start).value)


def dense(values: Sequence[Poly], loops: Mapping[Var, Poly]) -> bool:
    """Whether the values together take every point of their box exactly once.

    Args:
        values: One form per axis; terms without a variable of `loops` only offset the
            box.
        loops: The extent of each running loop.
    """
    used: list[Slice] = []
    if any(extent.vars & loops.keys() for extent in loops.values()):
        return False
    for value in values:
        moving = value.only(lambda atom: bool(free_vars(atom) & loops.keys()))
        digits = [(_digit(atom, loops), c) for atom, c in moving.terms]
        if not _contiguous(digits):
            return False
        used.extend(digit for digit, _ in digits if digit)
    return all(
        _independent([d for d in used if d.var == var], extent)
        for var, extent in loops.items()
        if any(d.var == var for d in used)
    )


def first_only(var: Var, extent: Poly, values: Sequence[Poly]) -> bool:
    """Whether a loop is in its first iteration wherever all values are 0."""
    driven = [value for value in values if var in value.vars]
    if any(c < 0 for value in driven for _, c in value.terms):
        return False
    forms = [value.only(lambda atom: var in free_vars(atom)) for value in driven]
    atoms = [atom for form in forms for atom, _ in form.terms]
    if var in atoms:
        return True
    parts = [atom for atom in atoms if isinstance(atom, Binary)]
    quotients = {atom.b for atom in parts if atom.a == var and atom.op == "floordiv"}
    rests = {atom.b for atom in parts if atom.a == var and atom.op == "floormod"}
    return bool(quotients & rests) or dense(forms, {var: extent})


def injective(values: Sequence[Poly], loops: Mapping[Var, Poly]) -> bool:
    """Whether the values differ between any two iterations of the loops."""
    left = {var for var in loops if loops[var] != number(1)}
    forms = [value.only(lambda atom: bool(free_vars(atom) & left)) for value in values]
    determined = [form for form in forms if _determines_loops(form, loops)]
    others = [form for form in forms if form not in determined]
    left -= {atom for form in determined for atom, _ in form.terms}
    used = frozenset().union(*(value.vars for value in others))
    return not left or (
        left <= used and dense(others, {var: loops[var] for var in left})
    )


def _determines_loops(form: Poly, loops: Mapping[Var, Poly]) -> bool:
    """Whether a sum determines its loops: weights exceed the reach of smaller ones."""
    reach: int | None = 0
    for atom, weight in sorted(form.terms, key=lambda term: abs(term[1])):
        extent = loops.get(atom) if isinstance(atom, Var) else None
        if extent is None or reach is None or abs(weight) <= reach:
            return False
        size = extent.value
        reach = None if size is None else reach + abs(weight) * (size - 1)
    return True


def _contiguous(digits: Sequence[tuple[Slice | None, int]]) -> bool:
    """Whether the digits' weights match their sizes: 1, size, size*size', ..."""

    def order(item: tuple[Slice | None, int]) -> tuple[int, bool]:
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


def _independent(digits: Sequence[Slice], extent: Poly) -> bool:
    """Whether digits of one loop take all combinations of values."""
    filled: int | None = 1
    for digit in sorted(digits, key=lambda d: d.start):
        if digit.start != filled:
            return False
        filled = None if digit.size is None else digit.start * digit.size
    top = max(digit.start for digit in digits)
    exact = divided(extent, top).scaled(top) == extent
    return exact and (filled is None or (filled > 0 and extent == number(filled)))
