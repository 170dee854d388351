"""Semantics of tensor core instructions: the distribution of matrices over lanes.

A fragment is the part of a matrix held by one lane, in order; see the figures of
`mma.m16n8k16` and `ldmatrix` in NVIDIA's PTX ISA. Values are arrays of (warps, 32
lanes, elements per lane).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tensorlang.ir.numeric import Array

LANES: Final = 32
_LANE: Final = np.arange(LANES)
_GROUP: Final = _LANE // 4
_PAIR: Final = _LANE % 4 * 2


def fragment(rows: Array, *, turned: bool) -> Array:
    """Distribute four 8 x 8 matrices, given by rows: two elements of each per lane."""
    matrices = rows.reshape(-1, 4, 8, 8)
    own = [
        matrices[:, :, _PAIR + e, _GROUP]
        if turned
        else matrices[:, :, _GROUP, _PAIR + e]
        for e in (0, 1)
    ]
    return np.stack(own, axis=-1).transpose(0, 2, 1, 3).reshape(-1, LANES, 8)


def _tile(values: Array, rows: Array, columns: Array) -> Array:
    """The f64 matrix whose element (rows, columns)[lane, n] is a lane's n-th one."""
    made = np.zeros((len(values), rows.max() + 1, columns.max() + 1))
    made[:, rows, columns] = values.astype(np.float64)
    return made


def _spread(row: Sequence[Array], column: Sequence[Array]) -> tuple[Array, Array]:
    return np.stack(row, axis=1), np.stack(column, axis=1)


# the positions of a lane's elements in their matrix (PTX ISA, warp-level mma)
_A16: Final = _spread(
    [_GROUP + n // 2 % 2 * 8 for n in range(8)],
    [_PAIR + n % 2 + n // 4 * 8 for n in range(8)],
)
_B16: Final = _spread(
    [_PAIR + n % 2 + n // 2 * 8 for n in range(4)], [_GROUP for n in range(4)]
)
_A8: Final = _spread(
    [_GROUP + n % 2 * 8 for n in range(4)], [_LANE % 4 + n // 2 * 4 for n in range(4)]
)
_B8: Final = _spread([_LANE % 4 + n * 4 for n in range(2)], [_GROUP for n in range(2)])
_C: Final = _spread(
    [_GROUP + n // 2 * 8 for n in range(4)], [_PAIR + n % 2 for n in range(4)]
)


def mma16(a: Array, b: Array, c: Array) -> Array:
    """`a @ b + c` of 16x16, 16x8 and 16x8: exact products, one rounding to f32."""
    product = _tile(a, *_A16) @ _tile(b, *_B16) + _tile(c, *_C)
    return product[:, _C[0], _C[1]].astype(np.float32)


def mma8(a: Array, b: Array, c: Array) -> Array:
    """`a @ b + c` of 16x8, 8x8 and 16x8, with a and b rounded to tf32."""
    product = _tile(tf32(a), *_A8) @ _tile(tf32(b), *_B8) + _tile(c, *_C)
    return product[:, _C[0], _C[1]].astype(np.float32)


def tf32(x: Array) -> Array:
    """f32 rounded to 10 fraction bits, ties away from zero."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
