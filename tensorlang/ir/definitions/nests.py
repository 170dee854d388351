"""Loop nests around one block, for definitions that are not a `compute`."""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang.ir.dtypes import i64
from tensorlang.ir.nodes import Axis, Block, Expr, For, Stmt, Var


def axis(name: str, extent: Expr, kind: str = "spatial") -> Axis:
    """An axis of a block, such as `vi`, with the loop `i` that drives it."""
    return Axis(Var(f"v{name}", i64), kind, extent, Var(name, i64))


def nest(name: str, axes: Sequence[Axis], body: Stmt) -> Stmt:
    """A block of that name in one serial loop per axis."""
    made: Stmt = Block(name, tuple(axes), body)
    for each in reversed(axes):
        assert isinstance(each.value, Var)
        made = For(each.value, each.extent, "serial", made)
    return made
