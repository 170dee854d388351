"""Upper bounds of a function's sizes: its arrays fit the address space.

This makes index arithmetic exact: sums of products of loop variables and sizes that
address an array never leave i64.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from tensorlang.frozen import frozen
from tensorlang.ir.nodes import Binary, Buffer, Const, Expr, Function, Var

MOST_BYTES: Final = 1 << 48  # of an array: the bits of an address


@frozen
class Size:
    """The upper end of a size's range."""

    most: int  # maximum
    # for each array that has it, its sizes and the maximum of their product
    shapes: tuple[tuple[tuple[Var, ...], int], ...]


def size_ranges(
    func: Function, most_bytes: int = MOST_BYTES
) -> dict[Var, tuple[int, Size]]:
    """The ranges of a function's sizes, as in `tensorlang.ir.integers.bounds`.

    A size is a factor of a parameter's dimension. No parameter has more than
    `most_bytes`, counting dimensions of 0 as 1.
    """
    held: dict[Var, list[tuple[tuple[Var, ...], int]]] = {}
    for buffer in func.buffers:
        sizes, most = _shape(buffer, most_bytes)
        for size in dict.fromkeys(sizes):
            held.setdefault(size, []).append((sizes, most))
    return {
        size: (0, Size(min(most for _, most in shapes), tuple(shapes)))
        for size, shapes in held.items()
    }


def _shape(buffer: Buffer, most_bytes: int) -> tuple[tuple[Var, ...], int]:
    """The sizes in an array's dimensions, and the maximum of their product."""
    sizes: list[Var] = []
    times = buffer.dtype.bytes
    for extent in buffer.shape:
        factors = tuple(_factors(extent))
        numbers = [int(f.value) for f in factors if isinstance(f, Const)]
        plain = all(isinstance(factor, Var | Const) for factor in factors)
        if plain and min(numbers, default=1) > 0:
            sizes += [factor for factor in factors if isinstance(factor, Var)]
            times *= math.prod(numbers)
    return tuple(sizes), most_bytes // times


def _factors(extent: Expr) -> Iterator[Expr]:
    """The factors of a dimension."""
    if isinstance(extent, Binary) and extent.op == "mul":
        yield from _factors(extent.a)
        yield from _factors(extent.b)
    else:
        yield extent
