"""The loops of a scheduled function: how often each runs, and the bytes it touches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf, prod
from typing import Final, TypeAlias

from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.accesses import ACCESSES, Access, buffers_of
from tensorlang.ir.integers.bounds import Known, Range, bounds
from tensorlang.ir.integers.intervals import Interval, hull, meet
from tensorlang.ir.visit import children, nodes_of, statements

Ranges: TypeAlias = Mapping[ir.Var, Range]
_EXPANDED: Final = ("vectorized", "unrolled")  # whose single iterations say little
_FIRST: Final[Range] = (0, 0)


@frozen
class Loop:
    """A loop."""

    depth: int  # number of loops around it
    name: str  # its variable
    kind: str  # its kind, and the index it is bound to
    trips: Interval  # least and the greatest number of iterations; None if unknown
    total: int | None  # greatest number of iterations of all its runs; None if unknown
    exact: bool  # whether it is the number
    # for each parameter the bytes of the box around all elements that the first
    # iteration may access; empty if loops are expanded
    touched: Mapping[str, int]
    # for each of these the bytes that it accesses, repeated ones counted again, over
    # the bytes of the box; left out where data decides
    uses: Mapping[str, float]

    @property
    def trips_text(self) -> str:
        """The number of iterations, as text."""
        low, high = self.trips
        if high is None:
            return "depends on data"
        return f"{high:,}" if low == high else f"{low:,} to {high:,}"

    @property
    def total_text(self) -> str:
        """The number of iterations of all runs, as text."""
        if self.total is None:
            return "depends on data"
        return f"{self.total:,}" if self.exact else f"at most {self.total:,}"

    @property
    def touched_text(self) -> str:
        """The bytes by parameter, as text."""
        return ", ".join(f"{name} {size:,}" for name, size in self.touched.items())

    @property
    def uses_text(self) -> str:
        """The uses of each byte, as text."""
        return ", ".join(f"{name} {uses:,.3g}" for name, uses in self.uses.items())


@frozen
class _Place:
    """Where a statement is: the ranges of variables, and how often it runs."""

    ranges: Ranges
    first: Ranges  # those in the first iterations of the loops around
    depth: int = 0
    total: int | None = 1
    exact: bool = True


def sizes_of(function: ir.Function, sizes: Mapping[str, int]) -> Ranges:
    """The ranges of a function's sizes."""
    known = (var for var in function.scalars if var.name in sizes)
    return {var: (sizes[var.name], sizes[var.name]) for var in known}


def loops_of(function: ir.Function, sizes: Mapping[str, int]) -> list[Loop]:
    """The loops of a function for given sizes, in order."""
    known = sizes_of(function, sizes)
    return list(_Loops(function).below(function.body, _Place(known, known)))


def bytes_of(buffer: ir.Buffer, ranges: Ranges) -> int:
    """The bytes of a buffer."""
    return prod(_most(extent, ranges) for extent in buffer.shape) * buffer.dtype.bytes


def _most(extent: ir.Expr, ranges: Ranges) -> int:
    return max(bounds(extent, ranges)[1] or 0, 0)


class _Loops:
    """A walk over a function."""

    def __init__(self, function: ir.Function) -> None:
        self.buffers = function.buffers

    def below(self, stmt: ir.Stmt, place: _Place) -> Iterator[Loop]:
        """The loops at and below a statement."""
        if isinstance(stmt, ir.For):
            found, place = self.loop(stmt, place)
            yield found
        elif isinstance(stmt, ir.While):
            place = replace(place, total=None)
        elif _guarded(stmt):
            place = replace(place, exact=False)
        for inner, own in _inside(stmt):
            ranges, first = {**place.ranges, **own}, {**place.first, **own}
            yield from self.below(inner, replace(place, ranges=ranges, first=first))

    def loop(self, stmt: ir.For, around: _Place) -> tuple[Loop, _Place]:
        """A loop's row, and the place of its body."""
        low, high = _trips(stmt, around.ranges)
        total = None if around.total is None or high is None else around.total * high
        own: Range = (0, None if high is None else high - 1)
        inside = replace(
            around,
            ranges={**around.ranges, stmt.var: own},
            first={**around.first, stmt.var: _FIRST},
            depth=around.depth + 1,
            total=total,
            exact=around.exact and low == high,
        )
        kind = f"{stmt.kind} {stmt.thread}".strip()
        expanded = stmt.kind in _EXPANDED
        touched, uses = ({}, {}) if expanded else self.touched(stmt.body, inside)
        row = (around.depth, stmt.var.name, kind, (low, high), total, inside.exact)
        return Loop(*row, touched, uses), inside

    def touched(
        self, body: ir.Stmt, place: _Place
    ) -> tuple[dict[str, int], dict[str, float]]:
        """What a loop's first iteration may access: bytes, and the uses of each."""
        boxes: dict[ir.Buffer, list[Interval]] = {}
        counts: dict[ir.Buffer, float] = {}
        for access, known, times in _accesses(body, place.first):
            box = [known.interval(index) for index in access.indices]
            for buffer in buffers_of(access):
                old = boxes.get(buffer, box)
                boxes[buffer] = [hull(a, b) for a, b in zip(old, box, strict=True)]
                counts[buffer] = counts.get(buffer, 0) + times
        sizes = {
            buffer: _bytes_in(boxes[buffer], buffer, place.ranges)
            for buffer in self.buffers
            if buffer in boxes
        }
        uses = {
            buffer.name: counts[buffer] * buffer.dtype.bytes / size
            for buffer, size in sizes.items()
            if size and counts[buffer] < inf
        }
        return {buffer.name: size for buffer, size in sizes.items()}, uses


def _trips(loop: ir.For, ranges: Ranges) -> Interval:
    """The least and the greatest number of iterations; None if unknown."""
    low, high = bounds(loop.extent, ranges)
    known = high is not None and high < loop.extent.dtype.limits[1]
    return max(low or 0, 0), max(high or 0, 0) if known else None


def _guarded(stmt: ir.Stmt) -> bool:
    """Whether a statement may skip what is inside of it."""
    whole = isinstance(stmt, ir.Block) and stmt.where is None and stmt.init is None
    return isinstance(stmt, (ir.If, ir.Role, ir.Block)) and not whole


def _inside(stmt: ir.Stmt) -> Iterator[tuple[ir.Stmt, Ranges]]:
    """The statements inside another one, with the variables that it defines."""
    own: dict[ir.Var, Range] = {}
    if isinstance(stmt, ir.Block):
        own = {axis.var: (axis.value, axis.value) for axis in stmt.axes}
    for inner in statements(stmt):
        yield inner, own
        if isinstance(inner, ir.Let) and not inner.var.dtype.is_float:
            own = {**own, inner.var: (inner.value, inner.value)}


def _accesses(
    stmt: ir.Stmt, ranges: Ranges, times: float = 1
) -> Iterator[tuple[Access, Known, float]]:
    """The accesses at and below a statement that may run, with what is known there.

    The number is how often each runs: at most, where conditions skip some.
    """
    if isinstance(stmt, ir.For):
        _, high = _trips(stmt, ranges)
        if high == 0:
            return
        times *= inf if high is None else high
        ranges = {**ranges, stmt.var: (0, None if high is None else high - 1)}
    known = Known(ranges)
    if isinstance(stmt, ACCESSES):
        yield stmt, known, times
    for child in children(stmt):
        if not isinstance(child, (ir.Stmt, ir.Buffer)):
            for load in nodes_of(child, ir.Load):
                yield load, known, times
    for inner, own in _inside(stmt):
        yield from _accesses(inner, {**ranges, **own}, times)


def _bytes_in(box: list[Interval], buffer: ir.Buffer, ranges: Ranges) -> int:
    """The bytes of the part of a box that is inside of a buffer."""
    size = buffer.dtype.bytes
    for index, extent in zip(box, buffer.shape, strict=True):
        low, high = meet(index, (0, _most(extent, ranges) - 1))
        assert low is not None
        assert high is not None
        size *= max(high - low + 1, 0)
    return size
