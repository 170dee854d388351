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
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

from tensorlang.codegen.names import Names
from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import allocations, reads, writes
from tensorlang.ir.dtypes import boolean
from tensorlang.ir.visit import rebuild, walk

_SHORT: Final = 4  # statements of a body that is duplicated anyway


@frozen
class Lanes:
    """Lanes under a condition."""

    lane: ir.Var  # lane number
    cond: ir.Expr  # condition of each lane
    some: ir.Expr  # whether it holds in any lane: that of the first
    together: ir.Expr  # whether wide accesses are possible
    # replaces `lane` in an expression by another number
    at: Callable[[ir.Expr, ir.Expr], ir.Expr]


def one_body(whole: ir.Stmt, lanes: Lanes, names: Names) -> ir.Stmt | None:
    """A common body for full and partial vectors.

    Returns:
        None if the body is short, or inactive lanes must not execute it.
    """
    own = set(allocations(whole))
    if not _is_long(whole) or not _is_harmless(whole, own):
        return None
    test = ir.Var(names.fresh("whole"), boolean)
    made = [
        part
        for kind, run in groupby(_gathered(whole), _kind)
        for part in _RUNS[kind](list(run), lanes, test)
    ]
    return ir.If(lanes.some, ir.seq(ir.Let(test, lanes.together), *made))


def _is_long(whole: ir.Stmt) -> bool:
    inner = [loop.body for loop in walk(whole) if isinstance(loop, ir.For)]
    counts = (
        sum(isinstance(n, ir.Let | ir.Store) for n in walk(body)) for body in inner
    )
    return max(counts, default=0) >= _SHORT


def _is_harmless(whole: ir.Stmt, own: set[ir.Buffer]) -> bool:
    """Whether inactive lanes may execute it: wide accesses and private memory only."""
    plain = (ir.Seq, ir.Alloc, ir.Let, ir.Store, ir.For)
    for stmt in (node for node in walk(whole) if isinstance(node, ir.Stmt)):
        if not isinstance(stmt, plain):
            return False
        if isinstance(stmt, ir.For) and not isinstance(stmt.extent, ir.Const):
            return False
        if isinstance(stmt, ir.Store) and not (stmt.buffer in own or _is_wide(stmt)):
            return False
    return not any(
        _varies(loop, own) for loop in _items(whole) if isinstance(loop, ir.For)
    )


def _varies(loop: ir.For, own: set[ir.Buffer]) -> bool:
    """Whether a loop over lanes accesses anything but registers."""
    return bool(reads(loop) - own) or bool(writes(loop) - own)


def _items(stmt: ir.Stmt) -> tuple[ir.Stmt, ...]:
    return stmt.stmts if isinstance(stmt, ir.Seq) else (stmt,)


def _gathered(whole: ir.Stmt) -> Iterator[ir.Stmt]:
    """The statements, reordered so that consecutive wide loads are adjacent."""
    held: list[ir.Stmt] = []
    for stmt in _items(whole):
        if _kind(stmt) == "load":
            held.append(stmt)
            continue
        filled = {b for load in held for b in writes(load)}
        if not isinstance(stmt, ir.Alloc | ir.Let) or reads(stmt) & filled:
            yield from held
            held = []
        yield stmt
    yield from held


def _kind(stmt: ir.Stmt) -> str:
    if isinstance(stmt, ir.Store) and _is_wide(stmt):
        loads = isinstance(stmt.value, ir.Load) and stmt.buffer.scope == "register"
        return "load" if loads else "store"
    return "other"


def _is_wide(stmt: ir.Store) -> bool:
    """Whether a store copies a vector between registers and memory."""
    value = stmt.value
    return (
        isinstance(value, ir.Load)
        and isinstance(stmt.indices[0], ir.Ramp)
        and isinstance(value.indices[0], ir.Ramp)
        and (stmt.buffer.scope == "register") != (value.buffer.scope == "register")
    )


def _as_it_is(run: Sequence[ir.Stmt], *_: object) -> Iterator[ir.Stmt]:
    yield from run


def _accesses(run: Sequence[Any], lanes: Lanes, test: ir.Var) -> Iterator[ir.Stmt]:
    """Wide accesses where possible, else masked accesses lane by lane."""
    parts: dict[tuple[int, int], list[ir.Store]] = {}
    for stmt in run:
        own, _ = _sides(stmt)
        parts.setdefault((int(own.base.value), own.lanes), []).append(stmt)
    each = []
    for (first, width), stmts in parts.items():
        lane = lanes.lane
        mask = lanes.at(lanes.cond, lane + first if first else lane)
        body = [_of_a_lane(stmt, lane, mask) for stmt in stmts]
        each.append(
            ir.For(lane, ir.Const(width, lane.dtype), "unrolled", ir.seq(*body))
        )
    yield ir.If(test, ir.seq(*run), ir.seq(*each))


def _sides(stmt: ir.Store) -> tuple[Any, Any]:
    """The ramps of a wide access: in registers, and in memory."""
    pair = stmt.indices[0], stmt.value.indices[0]  # type: ignore[attr-defined]
    return pair if stmt.buffer.scope == "register" else pair[::-1]


def _of_a_lane(stmt: ir.Store, lane: ir.Var, mask: ir.Expr) -> ir.Stmt:
    """One lane of a wide access, masked; inactive lanes load 0."""

    def visit(node: ir.Node) -> ir.Node:
        if isinstance(node, ir.Ramp):
            return node.base + lane
        return node if isinstance(node, ir.Buffer) else rebuild(node, visit)

    made = rebuild(stmt, visit)
    if stmt.buffer.scope == "register":
        assert isinstance(made.value, ir.Load)
        return replace(made, value=replace(made.value, mask=mask))
    return replace(made, mask=mask)


_RUNS: Final[dict[str, Callable[..., Iterator[ir.Stmt]]]] = {
    "load": _accesses,
    "store": _accesses,
    "other": _as_it_is,
}
