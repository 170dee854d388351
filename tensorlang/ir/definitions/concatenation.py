"""Concatenation: one loop nest per array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tensorlang.ir import nodes as ir
from tensorlang.ir.definitions.frontend import Stage, Tensor
from tensorlang.ir.definitions.sizes import sizes_of
from tensorlang.ir.dtypes import i64


class Piece(NamedTuple):
    """Elements of an array along an axis: `begin`, `begin + step` and so on."""

    array: Tensor
    begin: int
    step: int
    count: Any  # as the extents of an array


def joined(arrays: Sequence[Tensor], axis: int, name: str = "y") -> Tensor:
    """Concatenate arrays along an axis; their shapes agree in all others."""
    whole = [Piece(array, 0, 1, array.shape[axis]) for array in arrays]
    return joined_pieces(whole, axis, name)


def joined_pieces(
    pieces: Sequence[Piece], axis: int, name: str = "y", part: str = "part"
) -> Tensor:
    """Concatenate pieces of arrays along an axis; their shapes agree in all others.

    Blocks are named after `part`.
    """
    first, starts = pieces[0].array, [0]
    for piece in pieces:
        starts.append(starts[-1] + piece.count)
    shape = [*first.shape]
    shape[axis] = starts.pop()
    buffer = ir.Buffer(name, first.dtype, tuple(map(ir.as_expr, shape)))
    nests = [
        _copied(f"{part}{n}", piece, buffer, axis, ir.as_expr(start))
        for n, (piece, start) in enumerate(zip(pieces, starts, strict=True))
    ]
    arrays = dict.fromkeys(piece.array for piece in pieces)
    stage = Stage(ir.seq(nests), (buffer,), tuple(arrays))
    return Tensor(buffer, stage, sizes_of(shape))


def _copied(
    name: str, piece: Piece, y: ir.Buffer, axis: int, start: ir.Expr
) -> ir.Stmt:
    """Loops that copy a piece to its offset in `y`."""
    x, zero = piece.array, ir.as_expr(0)
    loops = [ir.Var(f"{name}_{n}", i64) for n in range(x.ndim)]
    inside = [ir.Var(f"v{loop.name}", i64) for loop in loops]
    place: list[ir.Expr] = [*inside]
    read: list[ir.Expr] = [*inside]
    if start != zero:
        place[axis] = inside[axis] + start
    if (piece.begin, piece.step) != (0, 1):
        read[axis] = inside[axis] * piece.step + piece.begin
    extents = [*x.buffer.shape]
    extents[axis] = ir.as_expr(piece.count)
    axes = tuple(
        ir.Axis(var, "spatial", extent, loop)
        for var, extent, loop in zip(inside, extents, loops, strict=True)
    )
    nest: ir.Stmt = ir.Block(name, axes, ir.Store(y, tuple(place), x[tuple(read)]))
    for loop, extent in reversed(list(zip(loops, extents, strict=True))):
        nest = ir.For(loop, extent, "serial", nest)
    return nest
