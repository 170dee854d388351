"""Helpers of the templates for atomic updates: the new value, and plain updates."""

from __future__ import annotations

from tensorlang.codegen.narrow import widened
from tensorlang.ir.dtypes import as_dtype
from tensorlang.ir.nodes import AtomicUpdate, Binary, Expr, Load, Store, Var


def combination(op: str, name: str) -> Expr:
    """`op` of `a`, the old value, and `b`, with the dtype of this name."""
    dtype = as_dtype(name)
    return widened(Binary(op, Var("a", dtype), Var("b", dtype)))


def plain_update(stmt: AtomicUpdate) -> Store:
    """A plain update, for memory that no other thread accesses."""
    old = Load(stmt.buffer, stmt.indices)
    value = widened(Binary(stmt.op, old, stmt.value))
    return Store(stmt.buffer, stmt.indices, value)
