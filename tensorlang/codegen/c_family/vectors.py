"""Queries of the vector macros: lanes, contiguous indices, tiles."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Final

from tensorlang.codegen.multiples import multiple
from tensorlang.codegen.simt.host import Launch, is_private
from tensorlang.codegen.vectors.sizes import pieces
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import allocations
from tensorlang.ir.visit import nodes_of

_WHOLE: Final = 32  # bits: narrower numbers are promoted next to a vector
_LOWEST: Final = -(1 << 31)  # of i32: C has no literal of that type for it


def lanes_of(node: ir.Node) -> int:
    """Lanes of an expression's value, or of the value that a statement stores."""
    value = node.value if isinstance(node, ir.Store) else node
    return value.dtype.lanes if isinstance(value, ir.Expr) else 1


def same_in_all_lanes(expr: ir.Expr) -> bool:
    """Whether a vector may be written as a scalar next to another vector."""
    if not isinstance(expr, ir.Splat) or expr.dtype.bits < _WHOLE:
        return False
    return not is_number(expr.value, _LOWEST)


def is_number(expr: ir.Expr, value: int) -> bool:
    """Whether an expression is this constant."""
    return isinstance(expr, ir.Const) and expr.value == value


def is_contiguous(index: ir.Expr) -> bool:
    """Whether lanes are contiguous in memory."""
    return isinstance(index, ir.Ramp) and is_number(index.stride, 1)


def picked(expr: ir.Shuffle | ir.Insert) -> list[tuple[ir.Expr, list[int]]]:
    """The parts of a shuffle or insert: vectors, and the lanes taken from each.

    A part has 1, 2, 4, 8 or 16 lanes, the vector sizes of the language.
    """
    runs = groupby(_lanes(expr), key=lambda pick: pick[0])
    found: list[tuple[ir.Expr, list[int]]] = []
    for vector, run in runs:
        lanes = [lane for _, lane in run]
        if vector.dtype.lanes == 1:
            found += [(vector, [0])] * len(lanes)
            continue
        found += [
            (vector, lanes[start : start + size]) for start, size in pieces(len(lanes))
        ]
    return found


def _lanes(expr: ir.Shuffle | ir.Insert) -> Iterator[tuple[ir.Expr, int]]:
    """The source of each lane: a vector, and the lane in it."""
    if isinstance(expr, ir.Insert):
        for lane in range(expr.dtype.lanes):
            own = lane != expr.lane
            yield (expr.vector, lane) if own else (expr.value, 0)
        return
    sources = [(v, n) for v in expr.vectors for n in range(v.dtype.lanes)]
    yield from (sources[lane] for lane in expr.lanes_taken)


def tiles(launch: Launch) -> dict[ir.Buffer, int]:
    """Private arrays that are only accessed by whole vectors, and their lanes.

    Declared as arrays of vectors they become registers; compilers do not see through
    vector accesses to arrays of scalars.
    """
    found: dict[ir.Buffer, set[int]] = {}
    for buffer in allocations(launch.body):
        if is_private(buffer):
            found[buffer] = set()
    for access in _accesses(launch) if found else ():
        if access.buffer in found:
            found[access.buffer].add(_whole_lanes(access))
    return {
        buffer: lanes.pop()
        for buffer, lanes in found.items()
        if len(lanes) == 1 and 0 not in lanes and _divides(buffer, *lanes)
    }


def wide(launch: Launch) -> frozenset[ir.Buffer]:
    """Private arrays with vector accesses."""
    return frozenset(
        access.buffer
        for access in _accesses(launch)
        if lanes_of(access) > 1 and is_private(access.buffer)
    )


def _accesses(launch: Launch) -> Iterator[ir.Load | ir.Store]:
    yield from nodes_of(launch.body, ir.Load)
    yield from nodes_of(launch.body, ir.Store)


def _whole_lanes(access: ir.Load | ir.Store) -> int:
    """Lanes of an access to a whole vector of a tile; 0 if it is none."""
    lanes = lanes_of(access)
    index = access.indices[0] if access.indices else ir.as_expr(0)
    if access.mask is not None or lanes == 1 or not is_contiguous(index):
        return 0
    assert isinstance(index, ir.Ramp)
    return 0 if multiple(index.base, {}) % lanes else lanes


def _divides(buffer: ir.Buffer, lanes: int) -> bool:
    (extent,) = buffer.shape
    return isinstance(extent, ir.Const) and int(extent.value) % lanes == 0
