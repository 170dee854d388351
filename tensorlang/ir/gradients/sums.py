"""Sums that a gradient need not compute: factors moved out of them, and known sums.

    sum over k of x[i, k] * w[k] / t[i]     (sum over k of x[i, k] * w[k]) / t[i]
    sum over k of x[i, k] - total[i] / n    total[i] - n * (total[i] / n) = 0

where `total[i]` is the sum over k of x[i, k], a stage of the definition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from tensorlang.frozen import frozen
from tensorlang.ir.contents import free_vars
from tensorlang.ir.gradients.derivatives import (
    ZERO,
    Product,
    Slope,
    Sum,
    factor,
    plus,
    times,
    written,
)
from tensorlang.ir.nodes import Binary, Buffer, Expr, Load, Node, Unary, Var
from tensorlang.ir.visit import holds, rebuild, rewriter, substitute


@frozen
class KnownSum:
    """A sum that a stage computes."""

    out: Buffer  # buffer of the sums
    place: tuple[Var, ...]  # variables of its index
    axes: Mapping[Var, Expr]  # extents of the axes summed over
    value: Expr  # what is summed

    def read(
        self, value: Expr, place: Sequence[Expr], axes: Mapping[Var, Expr]
    ) -> Load | None:
        """The sum of `value` at an index, if it is this one."""
        if len(place) != len(self.place) or [*axes.values()] != [*self.axes.values()]:
            return None
        here = dict(zip((*self.place, *self.axes), (*place, *axes), strict=True))
        same = substitute(self.value, here) == value
        return Load(self.out, tuple(place)) if same else None


def moved_out(value: Expr, axes: Collection[Var]) -> tuple[Expr, Expr | None]:
    """A summand without the factors that are the same in all terms, and these."""
    coefficient, product = factor(value)
    inside = tuple((part, n) for part, n in product if _varies(part, axes))
    outside = tuple((part, n) for part, n in product if not _varies(part, axes))
    if not inside or (not outside and coefficient == 1):
        return value, None
    rest, common = Sum(((inside, 1.0),)), Sum(((outside, coefficient),))
    return written(rest, value.dtype), written(common, value.dtype)


def closed(
    value: Expr,
    place: Sequence[Expr],
    axes: Mapping[Var, Expr],
    known: Iterable[KnownSum],
) -> Slope | None:
    """The sum of `value` over the axes in terms of known sums, if these suffice."""
    total: Slope = ZERO
    every = [*known]
    for sign, term in _terms(value):
        coefficient, product = factor(term)
        inside = [(part, n) for part, n in product if _varies(part, axes)]
        made: Slope = Sum(((tuple(p for p in product if p not in inside), 1.0),))
        if not inside:
            for extent in axes.values():
                made = times(made, factor(extent.cast(value.dtype)))
        elif len(inside) == 1 and inside[0][1] == 1:
            reads = (each.read(inside[0][0], place, axes) for each in every)
            load = next((read for read in reads if read is not None), None)
            if load is None:
                return None
            made = times(made, factor(load))
        else:
            return None
        total = plus(total, times(made, (sign * coefficient, ())))
    return total


def added(values: Sequence[Expr]) -> Expr:
    """The sum of contributions, with common factors in front."""
    first, *others = values
    if not others:
        return first
    total: Slope = ZERO
    for value in values:
        coefficient, product = factor(value)
        total = plus(total, Sum(((product, coefficient),)))
    return written(total, first.dtype)


def by_loops(value: Expr, loops: Collection[Var], *inner: Collection[Var]) -> Expr:
    """An element with the factors of each product grouped by the loops they vary with.

    What is the same along a loop, a reciprocal too, is then computed once for it:
    `x[i, k] * (w[i] / t[i])` in place of `x[i, k] / t[i] * w[i]`. What is made of
    indices alone is left where it is, unless it is the same along an inner loop.

    Args:
        value: The element.
        loops: The loops that it is computed in.
        inner: Those of them that may be the innermost, in sets.
    """

    @rewriter
    def visit(node: Node) -> Node:
        if not isinstance(node, Binary) or node.op not in ("mul", "div"):
            return rebuild(node, visit)
        coefficient, product = factor(node) if node.dtype.is_float else (1.0, ())
        inside: Product = ()
        groups: dict[frozenset[Var], Product] = {}
        for part, n in product:
            kind = free_vars(part).intersection(loops)
            of_row = len(kind) < len(loops) and holds(part, Load)
            if of_row or any(kind.isdisjoint(each) for each in inner):
                groups[kind] = (*groups.get(kind, ()), (part, n))
            else:
                inside = (*inside, (part, n))
        gains = any(len(group) > 1 or group[0][1] < 0 for group in groups.values())
        if not gains or not inside:
            return rebuild(node, visit)  # parts are visited once: here or below
        inside = tuple((visit(part), n) for part, n in inside)
        for group in groups.values():
            visited = tuple((visit(part), n) for part, n in group)
            shared = written(Sum(((visited, coefficient),)), node.dtype)
            inside, coefficient = (*inside, (shared, 1)), 1.0
        return written(Sum(((inside, 1.0),)), node.dtype)

    return visit(value)


def _varies(part: Expr, axes: Collection[Var]) -> bool:
    return not free_vars(part).isdisjoint(axes)


def _terms(value: Expr) -> Iterator[tuple[float, Expr]]:
    """The terms of a sum, each with its sign."""
    match value:
        case Binary(op="add" | "sub" as op, a=a, b=b):
            yield from _terms(a)
            turn = 1.0 if op == "add" else -1.0
            yield from ((turn * sign, term) for sign, term in _terms(b))
        case Unary(op="neg", a=a):
            yield from ((-sign, term) for sign, term in _terms(a))
        case _:
            yield 1.0, value
