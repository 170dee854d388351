"""Loop nests with several stores per iteration, which `compute` cannot express."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tensorlang import ir
from tensorlang.ir.simplification import sharing

Indices: TypeAlias = tuple[Any, ...]
# maps loop indices to the places stored to and the values
Stores: TypeAlias = "Callable[[Indices], list[tuple[Indices, ir.Expr]]]"


def extents(*sizes: int) -> tuple[ir.Expr, ...]:
    """Constant extents."""
    return tuple(ir.as_expr(size) for size in sizes)


def multi_store(
    buffer: ir.Buffer,
    names: Sequence[str],
    sizes: Sequence[ir.Expr],
    body: Stores,
    *inputs: ir.Tensor,
    guard: Callable[[Indices], ir.Expr | None] | None = None,
    name: str = "",
) -> ir.Tensor:
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
    loops = [ir.Var(name, ir.i64) for name in names]
    indices = tuple(ir.Var(f"v{name}", ir.i64) for name in names)
    stored = body(indices)
    taken = {buffer.name, *(var.name for var in (*loops, *indices))}
    lets, values = sharing.lets([value for _, value in stored], {}, taken)
    stores = [
        ir.Store(buffer, tuple(ir.as_expr(index) for index in place), value)
        for (place, _), value in zip(stored, values, strict=True)
    ]
    axes = tuple(
        ir.Axis(var, "spatial", extent, loop)
        for var, extent, loop in zip(indices, sizes, loops, strict=True)
    )
    where = guard(tuple(loops)) if guard else None
    made: ir.Stmt = ir.Block(name or buffer.name, axes, ir.seq(lets, stores), where)
    for loop, extent in zip(reversed(loops), reversed(sizes), strict=True):
        made = ir.For(loop, extent, "serial", made)
    return ir.Tensor(buffer, ir.Stage(made, (buffer,), inputs))
