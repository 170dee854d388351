"""What the templates of atomic updates ask: the new value, and updates of one's own."""

from __future__ import annotations

from tensorlang.codegen.narrow import widened
from tensorlang.ir.dtypes import as_dtype
from tensorlang.ir.nodes import AtomicUpdate, Binary, Expr, Load, Store, Var


def combination(op: str, name: str) -> Expr:
    """`op` of `a`, the old value, and `b`, in an element type of that name."""
    dtype = as_dtype(name)
    return widened(Binary(op, Var("a", dtype), Var("b", dtype)))


def plain_update(stmt: AtomicUpdate) -> Store:
    """The update of memory that no other thread has."""
    old = Load(stmt.buffer, stmt.indices)
    value = widened(Binary(stmt.op, old, stmt.value))
    return Store(stmt.buffer, stmt.indices, value)
