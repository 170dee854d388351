"""Bulk (TMA) copies: one thread copies a tile of an array to shared memory.

for i in range(128):                                    bulk_copy(full[s], to[s, 0, 0],
    for j in range(64):                          ->         from[0, 0], r, c, ...)
        to[s, i, j] = from[r + i, c + j]

A tile of several swizzled ones, side by side, takes a copy for each. Arrays have up to
five dimensions. The rows of a tile may be a box of several of them, such as lines and
columns of an image; along other dimensions it has one index, as in a batch of matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product
from math import prod
from operator import add, mul

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
from tensorlang.ir.simplification.simplify import simplify
from tensorlang.ir.simplification.zero_fill import filled, without_lets
from tensorlang.machine.gpus import MAPPED

_LARGEST = 256  # rows or columns of a box


@frozen
class Copy:
    """A copy of a whole tile, `to[.., i, j] = source[.., row + i, .., column + j]`.

    Attributes:
        to: The start of the tile in shared memory.
        source: The start of the array.
        corner: The start of the tile in it, by dimension.
        box: Extents of the tile, by dimension.
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
    store = without_lets(body)
    source = filled(store.value) if isinstance(store, ir.Store) else None
    if not isinstance(store, ir.Store) or source is None or store.mask is not None:
        raise _no_copy(stmt, "it is not a nest around one store of a load")
    to = ir.Load(store.buffer, store.indices)
    ranked = source.buffer.ndim in MAPPED
    if len(loops) < 2 or not ranked or source.mask is not None:
        raise _no_copy(stmt, "it does not copy a tile by rows and columns")
    if source.buffer.scope != "global" or to.buffer.scope != "shared":
        raise _no_copy(stmt, "it does not go from global to shared memory")
    if to.indices[-2:] != (row_of(loops[:-1]), loops[-1].var):
        raise _no_copy(stmt, "it does not fill a tile by rows")
    return _placed(stmt, to, source, loops)


def row_of(loops: Sequence[ir.For]) -> ir.Expr:
    """The row of a tile that loops are at, of which they count the digits."""
    row: ir.Expr = ir.as_expr(0)
    for loop in loops:
        row = row * loop.extent + loop.var
    return simplify(row)


def _placed(
    stmt: ir.Stmt, to: ir.Load, source: ir.Load, loops: Sequence[ir.For]
) -> list[Copy]:
    found = corner_of(source.indices, [loop.var for loop in loops])
    if found is None:
        raise _no_copy(stmt, "it does not read a box by rows")
    corner, dims = found
    shape, swizzle = extents(to.buffer), swizzle_of(to.buffer)
    counts = [loop.extent for loop in loops]
    rows = simplify(reduce(mul, counts[:-1]))
    if shape is None or (rows, counts[-1]) != tuple(to.buffer.shape[-2:]):
        raise _no_copy(stmt, "it does not fill all of its tile")
    sizes = [int(count.value) for count in counts if isinstance(count, ir.Const)]
    tile = shape[-2:]
    part = min(tile[0], TILE)
    if swizzle is None and is_paneled(to.buffer, part) and len(loops) == 2:
        tile, swizzle, sizes = (part, TILE), SWIZZLES[0], [part, TILE]
    if swizzle is None:
        raise _no_copy(stmt, f"{to.buffer.name} has a layout that it cannot write")
    box = by_dimension(source.buffer.ndim, dims, sizes, 1)
    _fits(stmt, source, box)
    start, lead = start_of(source.buffer), to.indices[:-2]
    places = [range(0, n, part) for n, part in zip(shape[-2:], tile, strict=True)]
    moves = {
        (r, c): by_dimension(len(corner), (dims[0], dims[-1]), (r, c), 0)
        for r, c in product(*places)
    }
    return [
        Copy(
            ir.Load(to.buffer, (*lead, ir.as_expr(r), ir.as_expr(c))),
            start,
            tuple(map(simplify, map(add, corner, move))),
            box,
            swizzle,
        )
        for (r, c), move in moves.items()
    ]


def corner_of(
    indices: Sequence[ir.Expr], loops: Sequence[ir.Var]
) -> tuple[tuple[ir.Expr, ...], tuple[int, ...]] | None:
    """Where a box starts that loops run along, one dimension each, the last one too.

    Returns:
        The start, by dimension, and the dimension of each loop. None if the indices are
        no box's.
    """
    used = [[n for n, at in enumerate(indices) if x in free_vars(at)] for x in loops]
    dims = tuple(at[0] for at in used if len(at) == 1)
    if len(dims) != len(loops) or dims != tuple(sorted({*dims})):
        return None
    along = dict(zip(dims, loops, strict=True))
    corner = [
        simplify(at - along[n]) if n in along else at for n, at in enumerate(indices)
    ]
    last = dims[-1] == len(indices) - 1
    if not last or any(free_vars(at) & {*loops} for at in corner):
        return None
    return tuple(corner), dims


def by_dimension(
    rank: int, dims: Sequence[int], sizes: Sequence[int], other: int
) -> tuple[int, ...]:
    """Numbers for some dimensions, and another one for the rest."""
    known = dict(zip(dims, sizes, strict=True))
    return tuple(known.get(n, other) for n in range(rank))


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
