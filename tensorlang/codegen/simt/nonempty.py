"""Bounds of sizes in a launch, from its grid having at least one block.

    grid (m * ((n + 511) // 512), 1, 1)   ->   m >= 1, n >= 1

Divisors that are at least 1 need no code for division by 0 or -1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tensorlang.ir.integers.bounds import Range
from tensorlang.ir.nodes import Binary, Cast, Const, Expr, Var


def sizes_in_launch(
    grid: Iterable[Expr], bounds: Mapping[Var, Range]
) -> dict[Var, Range]:
    """Ranges of sizes inside a launch.

    Args:
        grid: Numbers of blocks along each index.
        bounds: Ranges of the sizes in general; none is negative.
    """
    found = dict(bounds)
    for extent in grid:
        for var, least in _at_least(extent, 1):
            if var in found:
                low, high = found[var]
                assert isinstance(low, int)
                found[var] = max(low, least), high
    return found


def _at_least(extent: Expr, least: int) -> Iterator[tuple[Var, int]]:
    """Lower bounds of sizes implied by `extent >= least`, for `least >= 1`."""
    match extent:
        case Var():
            yield extent, least
        case Cast(a=a):
            yield from _at_least(a, least)
        case Binary(op="mul", a=a, b=b):  # neither is 0
            yield from _at_least(a, 1)
            yield from _at_least(b, 1)
        case Binary(op="min", a=a, b=b):
            yield from _at_least(a, least)
            yield from _at_least(b, least)
        case Binary(op="floordiv", a=a, b=Const(value=by)) if by > 0:
            yield from _at_least(a, least * int(by))
        case Binary(op="shr", a=a, b=Const(value=bits)) if bits >= 0:
            yield from _at_least(a, least << int(bits))
        case Binary(op="add", a=a, b=Const(value=more)) if least > more:
            yield from _at_least(a, least - int(more))
