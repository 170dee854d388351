"""Replace asynchronous copies that a target does not support by plain stores."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tensorlang.ir.natives import COPY_SYNCS
from tensorlang.ir.nodes import (
    Call,
    Const,
    Evaluate,
    Expr,
    Function,
    Load,
    Ramp,
    Select,
    Seq,
    Splat,
    Stmt,
    Store,
)
from tensorlang.ir.visit import transform_statements

ASYNC: Final = "async"
_WIDTHS: Final = (4, 8, 16)  # bytes per copy instruction


def is_copy_sync(stmt: Stmt) -> bool:
    """Whether a statement commits or waits for groups of copies."""
    return (
        isinstance(stmt, Evaluate)
        and isinstance(stmt.expr, Call)
        and stmt.expr.name in COPY_SYNCS
    )


def plain_copies(function: Function) -> Function:
    """The function with synchronous copies only."""

    def plain(stmt: Stmt) -> Stmt:
        return Seq(()) if is_copy_sync(stmt) else _synchronous(stmt)

    return transform_statements(function, plain)


def narrow_copies(function: Function) -> Function:
    """Keep only asynchronous copies of 4, 8 or 16 contiguous bytes from global."""

    def narrow(stmt: Stmt) -> Stmt:
        kept = isinstance(stmt, Store) and _is_copied(stmt)
        return stmt if kept else _synchronous(stmt)

    return transform_statements(function, narrow)


def _synchronous(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, Store) or ASYNC not in stmt.hints:
        return stmt
    return replace(stmt, hints=tuple(h for h in stmt.hints if h != ASYNC))


def _is_copied(store: Store) -> bool:
    size = store.value.dtype.lanes * store.buffer.dtype.bytes
    source = copied_from(store.value)
    together = bool(store.indices) and _are_neighbours(store)
    return together and size in _WIDTHS and source is not None and store.mask is None


def copied_from(value: Expr) -> Load | None:
    """The global load that a value copies, possibly zero-filled by a scalar select."""
    if isinstance(value, Select) and is_zero(value.b) and value.cond.dtype.lanes == 1:
        value = value.a
    if not isinstance(value, Load) or value.buffer.scope != "global":
        return None
    together = bool(value.indices) and _are_neighbours(value)
    return value if together and value.mask is None else None


def _are_neighbours(access: Load | Store) -> bool:
    """Whether an access is scalar or contiguous."""
    index = access.indices[0]
    return index.dtype.lanes == 1 or isinstance(index, Ramp)


def is_zero(value: Expr) -> bool:
    """Whether a value is 0 in all lanes."""
    inner = value.value if isinstance(value, Splat) else value
    return isinstance(inner, Const) and inner.value == 0
