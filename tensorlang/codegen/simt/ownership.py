"""Buffers of which each thread of a block accesses only its own elements.

    for j in bound(256, "thread.x"):          no barrier between these two: thread j
        e[i * 256 + j] = S                    reads what it wrote itself
    for j in bound(256, "thread.x"):
        y[i, j] = e[i * 256 + j] * 2.0

An index is a linear form in thread indices, a block-uniform part, and a rest. If the
thread coefficients and the uniform part are equal in all accesses, and the rests span
less than the smallest coefficient, threads access disjoint elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars, reads, touches, writes
from tensorlang.ir.integers.bounds import bounds, counted
from tensorlang.ir.integers.indices import linear
from tensorlang.ir.integers.polynomials import Poly
from tensorlang.ir.simplification.conditions import conjuncts
from tensorlang.ir.visit import children, nodes_of


@frozen
class _Place:
    """An access: thread coefficients, block-uniform part, range of the rest."""

    # coefficient and number of threads, by thread index
    threads: Mapping[str, tuple[int, int]]
    block: Poly  # part that is equal for all threads
    rest: tuple[int, int]  # minimum and maximum of the rest


def owned(body: ir.Stmt) -> frozenset[ir.Buffer]:
    """The buffers in a block's body that need no barriers."""
    block = free_vars(body)
    touched = reads(body) | writes(body)
    return frozenset(b for b in touched if _disjoint(list(_places(body, b, block))))


def _disjoint(places: list[_Place | None]) -> bool:
    """Whether the accesses of different threads are disjoint."""
    known = [place for place in places if place is not None]
    if not known or len(known) < len(places):
        return False
    low = min(place.rest[0] for place in known)
    reach = max(place.rest[1] for place in known) - low + 1
    multiples: dict[str, tuple[int, int]] = {}
    for place in known:
        if place.block != known[0].block:
            return False
        for index, (multiple, count) in place.threads.items():
            before = multiples.get(index, (multiple, count))
            if before[0] != multiple:
                return False
            multiples[index] = multiple, max(before[1], count)
    for multiple, count in sorted(multiples.values()):
        if multiple < reach:
            return False
        reach += multiple * (count - 1)
    return True


def _places(
    node: ir.Stmt,
    buffer: ir.Buffer,
    block: frozenset[ir.Var],
    around: tuple[ir.For | ir.If, ...] = (),
) -> Iterator[_Place | None]:
    """All accesses of a buffer; None for those that cannot be analysed."""
    if not touches(node, buffer):
        return
    if isinstance(node, (ir.Store, ir.AtomicUpdate)) and node.buffer == buffer:
        yield _place(node, block, around)
    inside = (*around, node) if isinstance(node, (ir.For, ir.If)) else around
    for child in children(node):
        held = around if isinstance(node, ir.If) and child is not node.then else inside
        if isinstance(child, ir.Stmt):
            yield from _places(child, buffer, block, held)
            continue
        for load in nodes_of(child, ir.Load):
            if load.buffer == buffer:
                yield _place(load, block, held)


def _place(
    access: ir.Load | ir.Store | ir.AtomicUpdate,
    block: frozenset[ir.Var],
    around: tuple[ir.For | ir.If, ...],
) -> _Place | None:
    loops = tuple(stmt for stmt in around if isinstance(stmt, ir.For))
    threads = {loop.var: loop for loop in loops if loop.thread.startswith("thread")}
    plain = isinstance(access, ir.Load) or (
        isinstance(access, ir.Store) and not access.hints
    )
    if not plain or not threads or len(access.indices) != 1:
        return None
    form = linear(access.indices[0])
    found: dict[str, tuple[int, int]] = {}
    for loop in threads.values():
        count = _count(loop, around)
        multiple = form.at(loop.var)
        if count is None or (multiple <= 0 and count > 1):
            return None
        if count > 1:
            found[loop.thread] = multiple, count
    own = form.only(lambda atom: free_vars(atom) <= block)
    rest = form - own - form.only(threads.__contains__)
    span = _span(rest.expr(), loops)
    return None if span is None else _Place(found, own, span)


def _count(loop: ir.For, around: tuple[ir.For | ir.If, ...]) -> int | None:
    """Number of threads that execute an access, the first of their loop."""
    if not isinstance(loop.extent, ir.Const):
        return None
    count = int(loop.extent.value)
    for stmt in around:
        for test in conjuncts(stmt.cond) if isinstance(stmt, ir.If) else ():
            match test:
                case ir.Compare(op="lt" | "le" as op, a=a, b=ir.Const(value=end)):
                    if a == loop.var:
                        count = min(count, int(end) + (op == "le"))
    return count


def _span(rest: ir.Expr, around: tuple[ir.For, ...]) -> tuple[int, int] | None:
    """The range of an expression; None if unknown."""
    ranges = {loop.var: counted(loop.extent) for loop in around}
    low, high = bounds(rest, ranges)
    return None if low is None or high is None else (low, high)
