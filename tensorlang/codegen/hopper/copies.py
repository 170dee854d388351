"""Bulk (TMA) copies: one thread copies a tile of an array to shared memory.

for i in range(128):                                    bulk_copy(full[s], to[s, 0, 0],
    for j in range(64):                          ->         from[0, 0], r, c, ...)
        to[s, i, j] = from[r + i, c + j]

A tile of several swizzled ones, side by side, takes a copy for each. In an array of up
to five dimensions, a tile has one index along all but two, as in a batch of matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod
from operator import add

from tensorlang.codegen.hopper.effects import COPY, moved
from tensorlang.codegen.hopper.layouts import (
    SWIZZLES,
    TILE,
    extents,
    is_paneled,
    swizzle_of,
)
from tensorlang.errors import CodegenError
from tensorlang.frozen import frozen
from tensorlang.ir import nodes as ir
from tensorlang.ir.contents import free_vars
from tensorlang.ir.simplification.conditions import conjuncts
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.machine.gpus import MAPPED

_LARGEST = 256  # rows or columns of a box


@frozen
class Copy:
    """A copy of a whole tile, `to[.., i, j] = source[.., row + i, .., column + j]`.

    Attributes:
        to: The start of the tile in shared memory.
        source: The start of the array.
        corner: The start of the tile in it, by dimension.
        box: Extents of the tile, by dimension; they are rows, columns and ones.
        swizzle: Its span in bytes.
    """

    to: ir.Load
    source: ir.Load
    corner: tuple[ir.Expr, ...]
    box: tuple[int, ...]
    swizzle: int

    @property
    def bytes(self) -> int:
        """Bytes moved."""
        return prod(self.box) * self.to.dtype.bytes

    def statement(self, arrives: ir.Load) -> ir.Evaluate:
        """The instruction, which arrives at a barrier object on completion."""
        places = arrives, self.to, self.source
        shape = self.source.buffer.shape
        return moved(
            COPY, places, self.corner, shape, box=self.box, swizzle=self.swizzle
        )


def copies_of(stmt: ir.Stmt) -> list[Copy]:
    """The bulk copies in a statement; CodegenError if one cannot be expressed."""
    stmts = stmt.stmts if isinstance(stmt, ir.Seq) else (stmt,)
    return [copy for item in stmts for copy in _copies(item)]


def _copies(stmt: ir.Stmt) -> list[Copy]:
    loops: list[ir.For] = []
    body: ir.Stmt = stmt
    while isinstance(body, ir.For):
        loops.append(body)
        body = body.body
    source = _source(body.value) if isinstance(body, ir.Store) else None
    if not isinstance(body, ir.Store) or source is None or body.mask is not None:
        raise _no_copy(stmt, "it is not a nest around one store of a load")
    to = ir.Load(body.buffer, body.indices)
    ranked = source.buffer.ndim in MAPPED
    if len(loops) != 2 or not ranked or source.mask is not None:
        raise _no_copy(stmt, "it does not copy a tile by rows and columns")
    if source.buffer.scope != "global" or to.buffer.scope != "shared":
        raise _no_copy(stmt, "it does not go from global to shared memory")
    i, j = (loop.var for loop in loops)
    if to.indices[-2:] != (i, j) or free_vars(to) & {i, j} != {i, j}:
        raise _no_copy(stmt, "it does not fill a tile by rows")
    return _placed(stmt, to, source, (i, j), tuple(loop.extent for loop in loops))


def _source(value: ir.Expr) -> ir.Load | None:
    """The load that a value copies; zero only where it is outside of its buffer.

    `select(i < n, x[min(i, n - 1), j], 0)` is `x[i, j]`: bulk copies fill the outside.
    """
    if isinstance(value, ir.Load):
        return value
    if not isinstance(value, ir.Select) or not isinstance(value.a, ir.Load):
        return None
    load = value.a
    if value.b != ir.Const(0, value.dtype):
        return None
    pairs = zip(load.indices, load.buffer.shape, strict=True)
    at = tuple(_unclamped(index, extent) for index, extent in pairs)
    tests = [
        index < extent for index, extent in zip(at, load.buffer.shape, strict=True)
    ]
    held = all(test in tests for test in conjuncts(value.cond))
    return replace(load, indices=at) if held else None


def _unclamped(index: ir.Expr, extent: ir.Expr) -> ir.Expr:
    match index:
        case ir.Binary(op="min", a=at, b=last) if last == simplify(extent - 1):
            return at
    return index


def _placed(
    stmt: ir.Stmt,
    to: ir.Load,
    source: ir.Load,
    loops: tuple[ir.Var, ir.Var],
    counts: tuple[ir.Expr, ...],
) -> list[Copy]:
    found = corner_of(source.indices, loops)
    if found is None:
        raise _no_copy(stmt, "it does not read a tile by rows")
    corner, row = found
    shape, swizzle = extents(to.buffer), swizzle_of(to.buffer)
    if shape is None or counts != tuple(to.buffer.shape[-2:]):
        raise _no_copy(stmt, "it does not fill all of its tile")
    tile = shape[-2:]
    if swizzle is None and is_paneled(to.buffer):
        tile, swizzle = (TILE, TILE), SWIZZLES[0]
    if swizzle is None:
        raise _no_copy(stmt, f"{to.buffer.name} has a layout that it cannot write")
    _fits(stmt, source, tile)
    start, lead = start_of(source.buffer), to.indices[:-2]
    places = [range(0, n, part) for n, part in zip(shape[-2:], tile, strict=True)]
    box = by_dimension(source.buffer.ndim, row, tile, 1)
    return [
        Copy(
            ir.Load(to.buffer, (*lead, ir.as_expr(r), ir.as_expr(c))),
            start,
            tuple(
                map(
                    simplify,
                    map(add, corner, by_dimension(len(corner), row, (r, c), 0)),
                )
            ),
            box,
            swizzle,
        )
        for r, c in product(*places)
    ]


def corner_of(
    indices: Sequence[ir.Expr], loops: Sequence[ir.Var]
) -> tuple[tuple[ir.Expr, ...], int] | None:
    """Where a tile starts whose rows and columns two loops run along.

    Columns are along the last dimension, rows along another one.

    Returns:
        The start, by dimension, and the dimension of the rows. None if the indices are
        no tile's.
    """
    row = [n for n, at in enumerate(indices[:-1]) if loops[0] in free_vars(at)]
    if len(row) != 1:
        return None
    along = dict(zip((row[0], len(indices) - 1), loops, strict=True))
    corner = [
        simplify(at - along[n]) if n in along else at for n, at in enumerate(indices)
    ]
    if any(free_vars(at) & {*loops} for at in corner):
        return None
    return tuple(corner), row[0]


def by_dimension(
    rank: int, row: int, tile: Sequence[int], other: int
) -> tuple[int, ...]:
    """Numbers for the rows and columns of a tile, and another one for the rest."""
    return tuple(
        tile[n == rank - 1] if n in (row, rank - 1) else other for n in range(rank)
    )


def start_of(buffer: ir.Buffer) -> ir.Load:
    """The first element of a buffer."""
    return ir.Load(buffer, (ir.as_expr(0),) * buffer.ndim)


def _fits(stmt: ir.Stmt, source: ir.Load, box: tuple[int, ...]) -> None:
    width = source.dtype.bytes
    if max(box) > _LARGEST or box[-1] * width % 16:
        raise _no_copy(
            stmt,
            f"a box of {box} exceeds 256, or its rows are not multiples of 16 bytes",
        )
    pitch = source.buffer.shape[-1]
    if isinstance(pitch, ir.Const) and int(pitch.value) * width % 16:
        raise _no_copy(stmt, f"rows of {pitch.value} are not a multiple of 16 bytes")


def _no_copy(stmt: ir.Stmt, why: str) -> CodegenError:
    first = repr(stmt).split("\n", 1)[0]
    return CodegenError(f"{first!r} cannot be a bulk copy: {why}")
