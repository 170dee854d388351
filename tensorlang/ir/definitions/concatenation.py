"""Concatenation: one loop nest per array."""

from __future__ import annotations

from collections.abc import Sequence

from tensorlang.ir import nodes as ir
from tensorlang.ir.definitions.frontend import Stage, Tensor
from tensorlang.ir.definitions.sizes import sizes_of
from tensorlang.ir.dtypes import i64


def joined(arrays: Sequence[Tensor], axis: int, name: str = "y") -> Tensor:
    """Concatenate arrays along an axis; their shapes agree in all others."""
    first, starts = arrays[0], [0]
    for array in arrays:
        starts.append(starts[-1] + array.shape[axis])
    shape = [*first.shape]
    shape[axis] = starts.pop()
    buffer = ir.Buffer(name, first.dtype, tuple(map(ir.as_expr, shape)))
    nests = [
        _copied(f"part{n}", array, buffer, axis, ir.as_expr(start))
        for n, (array, start) in enumerate(zip(arrays, starts, strict=True))
    ]
    return Tensor(
        buffer, Stage(ir.seq(nests), (buffer,), tuple(arrays)), sizes_of(shape)
    )


def _copied(name: str, x: Tensor, y: ir.Buffer, axis: int, start: ir.Expr) -> ir.Stmt:
    """Loops that copy `x` to its offset in `y`."""
    loops = [ir.Var(f"{name}_{n}", i64) for n in range(x.ndim)]
    inside = [ir.Var(f"v{loop.name}", i64) for loop in loops]
    place: list[ir.Expr] = [*inside]
    place[axis] = inside[axis] if start == ir.as_expr(0) else inside[axis] + start
    extents = x.buffer.shape
    axes = tuple(
        ir.Axis(var, "spatial", extent, loop)
        for var, extent, loop in zip(inside, extents, loops, strict=True)
    )
    nest: ir.Stmt = ir.Block(name, axes, ir.Store(y, tuple(place), x[tuple(inside)]))
    for loop, extent in reversed(list(zip(loops, extents, strict=True))):
        nest = ir.For(loop, extent, "serial", nest)
    return nest
