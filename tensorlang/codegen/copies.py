"""Replace asynchronous copies that a target does not support by plain stores."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tensorlang.ir import nodes as ir
from tensorlang.ir.natives import COPY_SYNCS
from tensorlang.ir.visit import transform_statements

ASYNC: Final = "async"
_WIDTHS: Final = (4, 8, 16)  # bytes per copy instruction


def is_copy_sync(stmt: ir.Stmt) -> bool:
    """Whether a statement commits or waits for groups of copies."""
    return (
        isinstance(stmt, ir.Evaluate)
        and isinstance(stmt.expr, ir.Call)
        and stmt.expr.name in COPY_SYNCS
    )


def plain_copies(function: ir.Function) -> ir.Function:
    """The function with synchronous copies only."""

    def plain(stmt: ir.Stmt) -> ir.Stmt:
        return ir.Seq(()) if is_copy_sync(stmt) else _synchronous(stmt)

    return transform_statements(function, plain)


def narrow_copies(function: ir.Function) -> ir.Function:
    """Keep only asynchronous copies of 4, 8 or 16 contiguous bytes from global."""

    def narrow(stmt: ir.Stmt) -> ir.Stmt:
        kept = isinstance(stmt, ir.Store) and _is_copied(stmt)
        return stmt if kept else _synchronous(stmt)

    return transform_statements(function, narrow)


def _synchronous(stmt: ir.Stmt) -> ir.Stmt:
    if not isinstance(stmt, ir.Store) or ASYNC not in stmt.hints:
        return stmt
    return replace(stmt, hints=tuple(h for h in stmt.hints if h != ASYNC))


def _is_copied(store: ir.Store) -> bool:
    size = store.value.dtype.lanes * store.buffer.dtype.bytes
    source = copied_from(store.value)
    together = bool(store.indices) and _are_neighbours(store)
    return together and size in _WIDTHS and source is not None and store.mask is None


def copied_from(value: ir.Expr) -> ir.Load | None:
    """The global load that a value copies, possibly zero-filled by a scalar select."""
    if (
        isinstance(value, ir.Select)
        and is_zero(value.b)
        and value.cond.dtype.lanes == 1
    ):
        value = value.a
    if not isinstance(value, ir.Load) or value.buffer.scope != "global":
        return None
    together = bool(value.indices) and _are_neighbours(value)
    return value if together and value.mask is None else None


def _are_neighbours(access: ir.Load | ir.Store) -> bool:
    """Whether an access is scalar or contiguous."""
    index = access.indices[0]
    return index.dtype.lanes == 1 or isinstance(index, ir.Ramp)


def is_zero(value: ir.Expr) -> bool:
    """Whether a value is 0 in all lanes."""
    inner = value.value if isinstance(value, ir.Splat) else value
    return isinstance(inner, ir.Const) and inner.value == 0
