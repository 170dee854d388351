"""One body for vectors that may be partial.

    if i * 4 + v < n:                   if i * 4 < n:
        y[i * 4 + v] =                      whole: bool = i * 4 + 3 < n
            f(x[i * 4 + v])                 if whole: x_wide = x[ramp(i * 4, 1, 4)]
                                   ->       else: x_wide[v] = x[i * 4 + v], masked
                                            y_wide[v] = f(x_wide[v])
                                            if whole: y[ramp(i * 4, 1, 4)] = y_wide
                                            else: y[i * 4 + v] = y_wide[v], masked

Inactive lanes compute on zeros, and their results are discarded. This is not possible
where they would have side effects (sums, atomic updates, faults) or might not terminate
(data-dependent extents); such a body is duplicated instead.
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

_SHORT: Final = 4  # statements of a body that is duplicated anyway


@dataclass(frozen=True, slots=True)
class Lanes:
    """Lanes under a condition.

    Attributes:
        lane: The lane number.
        cond: The condition of each lane.
        some: Whether it holds in any lane: that of the first.
        together: Whether wide accesses are possible.
        at: Replaces `lane` in an expression by another number.
    """

    lane: Var
    cond: Expr
    some: Expr
    together: Expr
    at: Callable[[Expr, Expr], Expr]


def one_body(whole: Stmt, lanes: Lanes, names: Names) -> Stmt | None:
    """A common body for full and partial vectors.

    Returns:
        None if the body is short, or inactive lanes must not execute it.
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
    """Whether inactive lanes may execute it: wide accesses and private memory only."""
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
    """Whether a loop over lanes accesses anything but registers."""
    return bool(reads(loop) - own) or bool(writes(loop) - own)


def _items(stmt: Stmt) -> tuple[Stmt, ...]:
    return stmt.stmts if isinstance(stmt, Seq) else (stmt,)


def _gathered(whole: Stmt) -> Iterator[Stmt]:
    """The statements, reordered so that consecutive wide loads are adjacent."""
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
    """Whether a store copies a vector between registers and memory."""
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
    """Wide accesses where possible, else masked accesses lane by lane."""
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
    """The ramps of a wide access: in registers, and in memory."""
    pair = stmt.indices[0], stmt.value.indices[0]  # type: ignore[attr-defined]
    return pair if stmt.buffer.scope == "register" else pair[::-1]


def _of_a_lane(stmt: Store, lane: Var, mask: Expr) -> Stmt:
    """One lane of a wide access, masked; inactive lanes load 0."""

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
