"""Lanes of which the last may have nothing to do: one body for all of them.

    if i * 4 + v < n:                   if i * 4 < n:
        y[i * 4 + v] =                      whole: bool = i * 4 + 3 < n
            f(x[i * 4 + v])                 if whole: x_wide = x[ramp(i * 4, 1, 4)]
                                   ->       else: x_wide[v] = x[i * 4 + v], masked
                                            y_wide[v] = f(x_wide[v])
                                            if whole: y[ramp(i * 4, 1, 4)] = y_wide
                                            else: y[i * 4 + v] = y_wide[v], masked

A lane without an element of its own computes on zeros, and nobody sees what. What lanes
would leave behind (sums, atomic updates, faults) or might not end by (data decide how
often) is not for such lanes: that body is written twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

from tensorlang.codegen.names import Names
from tensorlang.ir.contents import allocations, reads, writes
from tensorlang.ir.dtypes import boolean
from tensorlang.ir.nodes import (
    Alloc,
    Buffer,
    Const,
    Expr,
    For,
    If,
    Let,
    Load,
    Node,
    Ramp,
    Seq,
    Stmt,
    Store,
    Var,
    seq,
)
from tensorlang.ir.visit import rebuild, walk

_SHORT: Final = 4  # statements of a body that may as well be written twice


@dataclass(frozen=True, slots=True)
class Lanes:
    """Lanes under a condition.

    Attributes:
        lane: Their number.
        cond: Of each lane.
        some: Whether it holds in any lane; the first one's.
        together: Whether wide accesses are possible.
        at: An expression over `lane` for another number.
    """

    lane: Var
    cond: Expr
    some: Expr
    together: Expr
    at: Callable[[Expr, Expr], Expr]


def one_body(whole: Stmt, lanes: Lanes, names: Names) -> Stmt | None:
    """The body that all lanes run together, for lanes some of which have no element.

    Returns:
        None where the body is short, or does what only lanes with an element may do.
    """
    own = set(allocations(whole))
    if not _is_long(whole) or not _is_harmless(whole, own):
        return None
    test = Var(names.fresh("whole"), boolean)
    made = [
        part
        for kind, run in groupby(_gathered(whole), _kind)
        for part in _RUNS[kind](list(run), lanes, test, names)
    ]
    return If(lanes.some, seq(Let(test, lanes.together), *made))


def _is_long(whole: Stmt) -> bool:
    inner = [loop.body for loop in walk(whole) if isinstance(loop, For)]
    counts = (sum(isinstance(n, Let | Store) for n in walk(body)) for body in inner)
    return max(counts, default=0) >= _SHORT


def _is_harmless(whole: Stmt, own: set[Buffer]) -> bool:
    """Whether lanes may run along: only wide accesses, and what is the lanes' own."""
    plain = (Seq, Alloc, Let, Store, For)
    for stmt in (node for node in walk(whole) if isinstance(node, Stmt)):
        if not isinstance(stmt, plain):
            return False
        if isinstance(stmt, For) and not isinstance(stmt.extent, Const):
            return False
        if isinstance(stmt, Store) and not (stmt.buffer in own or _is_wide(stmt)):
            return False
    return not any(
        _varies(loop, own) for loop in _items(whole) if isinstance(loop, For)
    )


def _varies(loop: For, own: set[Buffer]) -> bool:
    """Whether lanes, one after the other, read what is not in their registers."""
    return bool(reads(loop) - own) or bool(writes(loop) - own)


def _items(stmt: Stmt) -> tuple[Stmt, ...]:
    return stmt.stmts if isinstance(stmt, Seq) else (stmt,)


def _gathered(whole: Stmt) -> Iterator[Stmt]:
    """Statements in an order in which wide loads that follow each other are a run."""
    held: list[Stmt] = []
    for stmt in _items(whole):
        if _kind(stmt) == "load":
            held.append(stmt)
            continue
        filled = {b for load in held for b in writes(load)}
        if not isinstance(stmt, Alloc | Let) or reads(stmt) & filled:
            yield from held
            held = []
        yield stmt
    yield from held


def _kind(stmt: Stmt) -> str:
    if isinstance(stmt, Store) and _is_wide(stmt):
        loads = isinstance(stmt.value, Load) and stmt.buffer.scope == "register"
        return "load" if loads else "store"
    return "other"


def _is_wide(stmt: Store) -> bool:
    """Whether a store fills registers from memory at once, or memory from registers."""
    value = stmt.value
    return (
        isinstance(value, Load)
        and isinstance(stmt.indices[0], Ramp)
        and isinstance(value.indices[0], Ramp)
        and (stmt.buffer.scope == "register") != (value.buffer.scope == "register")
    )


def _as_it_is(run: Sequence[Stmt], *_: object) -> Iterator[Stmt]:
    yield from run


def _accesses(
    run: Sequence[Any], lanes: Lanes, test: Var, names: Names
) -> Iterator[Stmt]:
    """Wide accesses where these are possible, and else each lane's, masked."""
    parts: dict[tuple[int, int], list[Store]] = {}
    for stmt in run:
        own, _ = _sides(stmt)
        parts.setdefault((int(own.base.value), own.lanes), []).append(stmt)
    each = []
    for (first, width), stmts in parts.items():
        lane = names.var(lanes.lane.name, lanes.lane.dtype)
        mask = lanes.at(lanes.cond, lane + first if first else lane)
        body = [_of_a_lane(stmt, lane, mask) for stmt in stmts]
        each.append(For(lane, Const(width, lane.dtype), "unrolled", seq(*body)))
    yield If(test, seq(*run), seq(*each))


def _sides(stmt: Store) -> tuple[Any, Any]:
    """The ramps of a wide access: over registers, and over memory."""
    pair = stmt.indices[0], stmt.value.indices[0]  # type: ignore[attr-defined]
    return pair if stmt.buffer.scope == "register" else pair[::-1]


def _of_a_lane(stmt: Store, lane: Var, mask: Expr) -> Stmt:
    """One lane's part of a wide access; a load of a lane without an element is 0."""

    def visit(node: Node) -> Node:
        if isinstance(node, Ramp):
            return node.base + lane
        return node if isinstance(node, Buffer) else rebuild(node, visit)

    made = rebuild(stmt, visit)
    if stmt.buffer.scope == "register":
        assert isinstance(made.value, Load)
        return replace(made, value=replace(made.value, mask=mask))
    return replace(made, mask=mask)


_RUNS: Final[dict[str, Callable[..., Iterator[Stmt]]]] = {
    "load": _accesses,
    "store": _accesses,
    "other": _as_it_is,
}
