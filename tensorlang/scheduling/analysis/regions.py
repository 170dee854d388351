"""Regions: the part of a buffer that a statement accesses, bounded per dimension.

Loops inside the statement are relaxed: `x[i*32 + j]` under `for j in range(32)`
accesses `i*32 .. i*32+31`. A dimension without bounds of constant size is taken whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TypeAlias

from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars
from tensorlang.ir.integers.indices import divided, linear, remainder
from tensorlang.ir.integers.polynomials import Poly, number
from tensorlang.ir.visit import children, holds


@frozen
class Range:
    """The integers `low .. high`, both ends included."""

    low: Poly
    high: Poly

    @property
    def extent(self) -> Poly:
        """The number of integers."""
        return (self.high - self.low).shifted(1)


Region: TypeAlias = tuple[Range, ...]
Ranges: TypeAlias = Mapping[ir.Var, Range | None]


@frozen
class Access:
    """An access in the program text, with its indices.

    `ranges` has the variables bound inside the statement in question.
    """

    buffer: ir.Buffer
    indices: tuple[ir.Expr, ...]
    writes: bool
    ranges: Ranges = field(repr=False)


def of_extent(extent: Poly) -> Range:
    """`0 .. extent-1`."""
    return Range(number(0), extent.shifted(-1))


def point(form: Poly) -> Range:
    """The range of a single value."""
    return Range(form, form)


def relax(expr: ir.Expr, ranges: Ranges) -> Range | None:
    """The range of an integer expression; variables not in `ranges` stay symbolic.

    None if it cannot be bounded, for example if it is loaded from memory.
    """
    match expr:
        case ir.Var():
            return ranges[expr] if expr in ranges else point(linear(expr))
        case ir.Cast(a=a) | ir.Splat(value=a) if expr.dtype.is_integer:
            return relax(a, ranges) if a.dtype.is_integer else None
        case ir.Ramp(base=base, stride=stride, lanes=lanes):
            return _ramp(relax(base, ranges), linear(stride), lanes)
        case ir.Unary(op="neg", a=a):
            inner = relax(a, ranges)
            return inner and Range(inner.high.scaled(-1), inner.low.scaled(-1))
        case ir.Binary(op=op, a=a, b=b) if op in _RULES:
            if _fixed(expr, ranges):
                return point(linear(expr))
            left, right = relax(a, ranges), relax(b, ranges)
            return _RULES[op](left, right) if left and right else None
    if not _fixed(expr, ranges):
        return None
    return point(linear(expr))


def _fixed(expr: ir.Expr, ranges: Ranges) -> bool:
    """Whether it is a single value: no vector, variable of `ranges`, or load."""
    if expr.dtype.lanes > 1 or not ranges.keys().isdisjoint(free_vars(expr)):
        return False
    return not holds(expr, ir.Load)


def _ramp(base: Range | None, stride: Poly, lanes: int) -> Range | None:
    if base is None or not stride.is_constant:
        return None
    step = stride.constant * (lanes - 1)
    return Range(base.low.shifted(min(step, 0)), base.high.shifted(max(step, 0)))


def _add(a: Range, b: Range) -> Range | None:
    return Range(a.low + b.low, a.high + b.high)


def _sub(a: Range, b: Range) -> Range | None:
    return Range(a.low - b.high, a.high - b.low)


def _mul(a: Range, b: Range) -> Range | None:
    if not (b.low.is_constant and b.low == b.high):
        a, b = b, a
    if not (b.low.is_constant and b.low == b.high):
        return None
    factor = b.low.constant
    ends = a.low.scaled(factor), a.high.scaled(factor)
    return Range(*ends) if factor >= 0 else Range(ends[1], ends[0])


def _floordiv(a: Range, b: Range) -> Range | None:
    divisor = _positive(b)
    if divisor is None:
        return None
    low, high = divided(a.low, divisor), divided(a.high, divisor)
    width = a.high - a.low
    if not (high - low).is_constant and width.is_constant:
        high = low.shifted(-(-width.constant // divisor))
    return Range(low, high)


def _floormod(a: Range, b: Range) -> Range | None:
    divisor = _positive(b)
    if divisor is None:
        return None
    start = divided(a.low, divisor).scaled(divisor)
    low, high = a.low - start, a.high - start
    if low.is_constant and high.is_constant and high.constant < divisor:
        return Range(low, high)
    if a.low == a.high:  # a single symbolic value has a single remainder
        return point(remainder(a.low, divisor))
    return of_extent(number(divisor))


def _positive(b: Range) -> int | None:
    same = b.low == b.high and b.low.is_constant and b.low.constant > 0
    return b.low.constant if same else None


def _min(a: Range, b: Range) -> Range | None:
    low, high = _lower(a.low, b.low), _lower(a.high, b.high)
    return None if low is None or high is None else Range(low, high)


def _max(a: Range, b: Range) -> Range | None:
    low, high = _higher(a.low, b.low), _higher(a.high, b.high)
    return None if low is None or high is None else Range(low, high)


def _lower(a: Poly, b: Poly) -> Poly | None:
    gap = a - b
    return (a if gap.constant <= 0 else b) if gap.is_constant else None


def _higher(a: Poly, b: Poly) -> Poly | None:
    gap = a - b
    return (a if gap.constant >= 0 else b) if gap.is_constant else None


_RULES = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "floordiv": _floordiv,
    "floormod": _floormod,
    "min": _min,
    "max": _max,
}


def clip(found: Range | None, extent: Poly) -> Range:
    """`found` clipped to `0 .. extent-1` if its size stays known; else all of that."""
    whole = of_extent(extent)
    if found is None or not found.extent.is_constant:
        return whole
    if found.extent.constant == 1:
        return found
    if found.low.is_constant:
        least = _lower(found.high, whole.high)
        high = found.high if least is None else least
        return Range(number(max(found.low.constant, 0)), high)
    small = (extent - found.extent).constant if extent.is_constant else 1
    return found if small > 0 else whole


def union(a: Range | None, b: Range | None) -> Range | None:
    """The smallest range containing both, if their distance is constant."""
    if a is None or b is None:
        return None
    low, high = _lower(a.low, b.low), _higher(a.high, b.high)
    return None if low is None or high is None else Range(low, high)


def accesses(node: ir.Node, ranges: Ranges | None = None) -> Iterator[Access]:
    """Every access at or below `node`, in program order."""
    return _visit(node, dict(ranges or {}))


def _visit(node: ir.Node, ranges: dict[ir.Var, Range | None]) -> Iterator[Access]:
    match node:
        case ir.Buffer():
            return
        case ir.For(var=var, extent=extent, body=body):
            yield from _visit(extent, ranges)
            last = relax(extent, ranges)
            inside = last and Range(number(0), last.high.shifted(-1))
            yield from _visit(body, ranges | {var: inside})
            return
        case ir.Block():
            yield from _visit_block(node, ranges)
            return
        case ir.Let(var=var, value=value):
            yield from _visit(value, ranges)
            ranges[var] = relax(value, ranges) if var.dtype.is_integer else None
            return
        case ir.Load(buffer=buffer, indices=indices):
            yield Access(buffer, indices, writes=False, ranges=dict(ranges))
        case ir.Store(buffer=buffer, indices=indices):
            yield Access(buffer, indices, writes=True, ranges=dict(ranges))
        case ir.AtomicUpdate(buffer=buffer, indices=indices):
            yield Access(buffer, indices, writes=False, ranges=dict(ranges))
            yield Access(buffer, indices, writes=True, ranges=dict(ranges))
        case ir.Reduce(buffers=buffers, indices=indices, values=values):
            for buffer in buffers:
                yield Access(buffer, indices, writes=False, ranges=dict(ranges))
                yield Access(buffer, indices, writes=True, ranges=dict(ranges))
            for value in (*indices, *values):
                yield from _visit(value, ranges)
            return
    for child in children(node):
        yield from _visit(child, ranges)


def _visit_block(
    block: ir.Block, ranges: dict[ir.Var, Range | None]
) -> Iterator[Access]:
    for axis in block.axes:
        yield from _visit(axis.value, ranges)
    if block.where is not None:
        yield from _visit(block.where, ranges)
    inside = dict(ranges)
    for axis in block.axes:
        found = relax(axis.value, ranges)
        inside[axis.var] = clip(found, linear(axis.extent))
    if block.init is not None:
        yield from _visit(block.init, inside)
    yield from _visit(block.body, inside)


def region(
    node: ir.Stmt,
    buffer: ir.Buffer,
    *,
    writes: bool | None = None,
    ranges: Ranges | None = None,
) -> Region | None:
    """The part of `buffer` accessed at or below `node`, over the loops inside it.

    Args:
        node: The statement; variables bound outside it stay symbolic.
        writes: True for writes, False for reads, None for both.
        ranges: Variables bound outside that are to be relaxed, too.

    Returns:
        One range per dimension; None if the buffer is not accessed.
    """
    found: list[Range | None] | None = None
    for access in accesses(node, ranges):
        if access.buffer != buffer or writes not in (None, access.writes):
            continue
        here = [relax(index, access.ranges) for index in access.indices]
        found = here if found is None else [*map(union, found, here)]
    if found is None:
        return None
    extents = [linear(extent) for extent in buffer.shape]
    return tuple(map(clip, found, extents))


def whole(buffer: ir.Buffer) -> Region:
    """All of a buffer."""
    return tuple(of_extent(linear(extent)) for extent in buffer.shape)
