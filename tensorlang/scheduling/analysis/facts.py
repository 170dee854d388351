"""Arithmetic on extents, and facts known about them at a place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TypeAlias

from tensorlang.ir.integers.bounds import Range, counted, prove
from tensorlang.ir.integers.indices import linear, multiples
from tensorlang.ir.integers.size_bounds import size_ranges
from tensorlang.ir.nodes import Binary, Const, Expr, If, Var, as_expr
from tensorlang.ir.simplification.conditions import conjuncts
from tensorlang.scheduling.analysis import tree

# inclusive ends, as in `tensorlang.ir.integers.bounds`
Ranges: TypeAlias = Mapping[Var, Range]


def product(factors: Iterable[Expr]) -> Expr:
    """The product, with its constants combined at the end."""
    result: Expr | None = None
    number = 1
    for factor in factors:
        value = tree.constant(factor)
        if value is not None:
            number *= value
        else:
            result = factor if result is None else result * factor
    if result is None:
        return as_expr(number)
    return result if number == 1 else result * number


def ceil_div(extent: Expr, size: int) -> Expr:
    """`extent / size`, rounded up."""
    known = tree.constant(extent)
    if known is not None:
        return Const(-(-known // size), extent.dtype)
    return extent if size == 1 else (extent + (size - 1)) // size


def divides(size: int, extent: Expr, path: tree.Path = ()) -> bool:
    """Whether `size` divides `extent` at a place: always, or due to an outer `If`."""
    _, rest = multiples(linear(extent), size)
    if not rest:
        return True
    wanted = (extent % size).equal(0)
    return any(fact == wanted for fact in facts(path))


def facts(path: tree.Path) -> Iterator[Expr]:
    """The conditions that hold at a place due to the `If`s around it."""
    for parent, child in pairwise(path):
        if isinstance(parent, If) and child is parent.then:
            yield from conjuncts(parent.cond)


def ranges_at(path: tree.Path) -> Ranges:
    """The ranges of size variables and of the loop variables around a place."""
    found: dict[Var, Range] = {**size_ranges(tree.function_of(path))}
    for loop in tree.enclosing_loops(path):
        found[loop.var] = counted(loop.extent)
    return found


def nonnegative(extent: Expr, path: tree.Path) -> Expr:
    """`extent`, clamped to 0 unless provably nonnegative at a place."""
    if prove(extent >= 0, ranges_at(path)):
        return extent
    return Binary("max", extent, Const(0, extent.dtype))
