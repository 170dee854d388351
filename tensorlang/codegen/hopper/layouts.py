"""Layouts that the hardware supports: swizzled tiles, and `wgmma` accumulators."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tensorlang.ir.collectives import WARPGROUP
from tensorlang.ir.nodes import Buffer, Const
from tensorlang.ir.semantics import evaluate
from tensorlang.machine.gpus import LINE, PIECE

SWIZZLES: Final = (128, 64, 32)
TILE: Final = LINE // 2  # rows of a swizzled tile, and elements of 16 bits in 128 bytes


def extents(buffer: Buffer) -> tuple[int, ...] | None:
    """The shape of a buffer as integers; None if it is not constant."""
    found = [extent.value for extent in buffer.shape if isinstance(extent, Const)]
    return tuple(map(int, found)) if len(found) == buffer.ndim else None


def places(buffer: Buffer) -> list[np.ndarray] | None:
    """The layout's physical indices of all elements, in row-major order."""
    shape = extents(buffer)
    if shape is None:
        return None
    grid = np.indices(shape, np.int64).reshape(len(shape), -1)
    if buffer.layout is None:
        return list(grid)
    values = dict(zip(buffer.layout.vars, grid, strict=True))
    results = (evaluate(result, values) for result in buffer.layout.results)
    return [np.broadcast_to(result, grid.shape[1]) for result in results]


def swizzle_of(buffer: Buffer) -> int | None:
    """The swizzle of a buffer's rows, in bytes: 0 for none, None for another layout."""
    shape, found = extents(buffer), places(buffer)
    if shape is None or found is None or len(found) != len(shape) or len(shape) < 2:
        return None
    grid = np.indices(shape, np.int64).reshape(len(shape), -1)
    if any((a != b).any() for a, b in zip(found[:-1], grid[:-1], strict=True)):
        return None
    row, column = grid[-2], grid[-1]
    if (found[-1] == column).all():
        return 0
    piece = PIECE // buffer.dtype.bytes
    for swizzle in SWIZZLES:
        if shape[-1] * buffer.dtype.bytes != swizzle:
            continue
        turn = row * swizzle // LINE % (swizzle // PIECE)
        if (found[-1] == (column // piece ^ turn) * piece + column % piece).all():
            return swizzle
    return None


def is_paneled(buffer: Buffer, rows: int = TILE) -> bool:
    """Whether a buffer's matrices are panels of 64 columns, one right after another.

    Panels have a multiple of so many rows. Elements have 16 bits, so that rows have 128
    bytes: these are swizzled, and a matrix starts where the pattern does.
    """
    shape, found = extents(buffer), places(buffer)
    if shape is None or found is None or len(shape) < 2 or buffer.dtype.bytes != 2:
        return False
    if shape[-2] % rows or shape[-1] % TILE:
        return False
    at = np.ravel_multi_index(found, [int(axis.max()) + 1 for axis in found])
    matrices = at.reshape(-1, *shape[-2:])
    start = matrices[:, :1, :1]
    r, c = np.indices(shape[-2:])
    panel = c // TILE * shape[-2] * TILE
    wanted = panel + r * TILE + (c % TILE // 8 ^ r % 8) * 8 + c % 8
    return bool((matrices - start == wanted).all() and (start % (8 * TILE) == 0).all())


def has_sums(buffer: Buffer) -> bool:
    """Whether a buffer's 64 rows are laid out as the accumulators of a warpgroup.

    Threads are compared within the warpgroup; the rows determine which warpgroup.
    """
    shape, found = extents(buffer), places(buffer)
    if shape is None or found is None or len(shape) != 2:
        return False
    i, j = np.indices(shape, np.int64).reshape(2, -1)
    thread = i // 16 % 4 * 32 + i % 8 * 4 + j % 8 // 2
    register = j // 8 * 4 + i // 8 % 2 * 2 + j % 2
    sizes = [int(result.max()) + 1 for result in found[1:]]
    own = np.ravel_multi_index(found[1:], sizes) if sizes else thread * 0
    return bool((found[0] % WARPGROUP == thread).all() and (own == register).all())


def groups_of_rows(buffer: Buffer) -> Any:
    """For each row of accumulators, the warpgroup that holds it."""
    shape, found = extents(buffer), places(buffer)
    assert shape is not None
    assert found is not None
    return found[0].reshape(shape)[:, 0] // WARPGROUP
