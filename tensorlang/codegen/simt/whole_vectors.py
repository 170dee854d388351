"""Combine scalar register accesses that form a vector into one vector access.

    d: f32x4 = mma(a, b, shuffle((c[0], c[1], c[2], c[3]), (0, 1, 2, 3)))
    c[0] = extract(d, 0)
    c[1] = extract(d, 1)    ->    c[ramp(0, 1, 4)] = mma(a, b, c[ramp(0, 1, 4)])
    c[2] = extract(d, 2)
    c[3] = extract(d, 3)

Requires contiguous indices, the first a multiple of their number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from tensorlang.codegen.multiples import multiple
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.ir.visit import rebuild, rewriter


def combine_vectors(function: ir.Function) -> ir.Function:
    """The function with vector accesses to registers where possible."""
    return replace(function, body=_visit(function.body))


@rewriter
def _visit(node: ir.Node) -> ir.Node:
    match node:
        case ir.Buffer():
            return node
        case ir.Seq():
            stored = _stored([_visit(stmt) for stmt in node.stmts])
            return ir.seq(*forwarded(stored, _is_vector))
        case ir.Shuffle(vectors=vectors, lanes_taken=lanes) if lanes == _all(vectors):
            whole = _loaded(node)
            return rebuild(node, _visit) if whole is None else whole
        case ir.Shuffle(vectors=(ir.Load() as load,)):
            part = _part(load, node.lanes_taken)
            return rebuild(node, _visit) if part is None else part
        case ir.Node():
            return rebuild(node, _visit)
    return node


def _all(vectors: Sequence[ir.Expr]) -> tuple[int, ...]:
    return tuple(range(len(vectors)))


def _loaded(vector: ir.Shuffle) -> ir.Expr | None:
    """One load in place of those that a shuffle combines."""
    loads = [v for v in vector.vectors if isinstance(v, ir.Load) and v.mask is None]
    if len(loads) != len(vector.vectors):
        return None
    first = _first([(load.buffer, load.indices) for load in loads])
    if first is None:
        return None
    return replace(loads[0], indices=(ir.ramp(first, len(loads)),))


def _part(load: ir.Load, lanes: Sequence[int]) -> ir.Expr | None:
    """Contiguous lanes of a wide load as a narrower load."""
    (index,) = load.indices
    if load.buffer.scope != "register" or not isinstance(index, ir.Ramp):
        return None
    if tuple(lanes) != tuple(range(lanes[0], lanes[0] + len(lanes))):
        return None
    if lanes[0] % len(lanes) or multiple(index.base, {}) % len(lanes):
        return None
    first = simplify(index.base + lanes[0])
    return replace(load, indices=(ir.ramp(first, len(lanes)),))


def _stored(stmts: list[ir.Stmt]) -> list[ir.Stmt]:
    """Combine consecutive stores of a vector's lanes."""
    made: list[ir.Stmt] = []
    while stmts:
        run = _lanes(stmts)
        if run is None:
            made.append(stmts[0])
            stmts = stmts[1:]
        else:
            count, store = run
            made.append(store)
            stmts = stmts[count:]
    return made


def _lanes(stmts: list[ir.Stmt]) -> tuple[int, ir.Store] | None:
    """The number of leading statements that store a vector's lanes, and their store."""
    head = stmts[0]
    if not isinstance(head, ir.Store) or not isinstance(head.value, ir.Extract):
        return None
    vector = head.value.vector
    run = stmts[: vector.dtype.lanes]
    places = [
        (stmt.buffer, stmt.indices)
        for lane, stmt in enumerate(run)
        if isinstance(stmt, ir.Store) and stmt.mask is None
        if stmt.value == ir.Extract(vector, lane)
    ]
    first = _first(places) if len(places) == vector.dtype.lanes else None
    if first is None:
        return None
    return len(run), replace(head, indices=(ir.ramp(first, len(run)),), value=vector)


def forwarded(
    stmts: Sequence[ir.Stmt], fits: Callable[[ir.Let], bool]
) -> list[ir.Stmt]:
    """The statements; values that fit and are only stored next are in the store."""
    made: list[ir.Stmt] = []
    for number, stmt in enumerate(stmts):
        last = made[-1] if made else None
        if (
            isinstance(last, ir.Let)
            and isinstance(stmt, ir.Store)
            and stmt.value == last.var
            and fits(last)
            and not any(last.var in free_vars(s) for s in stmts[number + 1 :])
            and last.var not in frozenset().union(*map(free_vars, stmt.indices))
        ):
            made[-1] = replace(stmt, value=last.value)
        else:
            made.append(stmt)
    return made


def _is_vector(let: ir.Let) -> bool:
    return let.var.dtype.lanes > 1


def _first(places: list[tuple[ir.Buffer, tuple[ir.Expr, ...]]]) -> ir.Expr | None:
    """The first index, if the indices are contiguous and aligned in registers."""
    buffers = {buffer for buffer, _ in places}
    if len(buffers) != 1 or next(iter(buffers)).scope != "register":
        return None
    if len(places) < 2 or any(len(indices) != 1 for _, indices in places):
        return None
    every = [indices[0] for _, indices in places]
    if any(simplify(b - a) != ir.as_expr(1) for a, b in pairwise(every)):
        return None
    return None if multiple(every[0], {}) % len(places) else every[0]
