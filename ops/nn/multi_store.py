"""Loop nests with several stores per iteration, which `compute` cannot express."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tensorlang.ir import as_expr, i64, sharing
from tensorlang.ir.frontend import Stage, Tensor
from tensorlang.ir.nodes import Axis, Block, Buffer, For, Store, Var, seq

if TYPE_CHECKING:
    from tensorlang.ir.nodes import Expr, Stmt

Indices: TypeAlias = tuple[Any, ...]
# maps loop indices to the places stored to and the values
Stores: TypeAlias = "Callable[[Indices], list[tuple[Indices, Expr]]]"


def extents(*sizes: int) -> tuple[Expr, ...]:
    """Constant extents."""
    return tuple(as_expr(size) for size in sizes)


def multi_store(
    buffer: Buffer,
    names: Sequence[str],
    sizes: Sequence[Expr],
    body: Stores,
    *inputs: Tensor,
    guard: Callable[[Indices], Expr | None] | None = None,
    name: str = "",
) -> Tensor:
    """A tensor computed by a nest with several stores per iteration.

    Args:
        buffer: The result.
        names: Names of the loops.
        sizes: Extents of the loops.
        body: The stores of an iteration; no element is stored twice.
        inputs: Tensors to compute first.
        guard: Maps loop variables to the predicate of an iteration.
        name: Name of the block, by default that of the buffer.
    """
    loops = [Var(name, i64) for name in names]
    indices = tuple(Var(f"v{name}", i64) for name in names)
    stored = body(indices)
    taken = {buffer.name, *(var.name for var in (*loops, *indices))}
    lets, values = sharing.lets([value for _, value in stored], {}, taken)
    stores = [
        Store(buffer, tuple(as_expr(index) for index in place), value)
        for (place, _), value in zip(stored, values, strict=True)
    ]
    axes = tuple(
        Axis(var, "spatial", extent, loop)
        for var, extent, loop in zip(indices, sizes, loops, strict=True)
    )
    where = guard(tuple(loops)) if guard else None
    made: Stmt = Block(name or buffer.name, axes, seq(lets, stores), where)
    for loop, extent in zip(reversed(loops), reversed(sizes), strict=True):
        made = For(loop, extent, "serial", made)
    return Tensor(buffer, Stage(made, (buffer,), inputs))
