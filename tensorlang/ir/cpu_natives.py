"""Natives of CPUs, introduced by `tensorize`: dot and matrix products, transposes."""

from __future__ import annotations

from typing import Final

import numpy as np

from tensorlang.errors import DTypeError
from tensorlang.instructions import (
    DOT_PRODUCTS,
    MATRIX_PRODUCTS,
    DotProduct,
    MatrixProduct,
)
from tensorlang.ir import numeric
from tensorlang.ir.dtypes import DType
from tensorlang.ir.natives import Intrinsic
from tensorlang.ir.numeric import Array


def _native(row: DotProduct) -> Intrinsic:
    """An instruction on the sums, then `a[:, p]` for each `p`, then `b[:, p]`."""
    wanted = (row.sums, *[row.a] * row.group, *[row.b] * row.group)

    def result(dtypes: tuple[DType, ...]) -> DType:
        lanes = dtypes[0].lanes
        needed = tuple(DType(name).vector(lanes) for name in wanted)
        if dtypes != needed:
            raise DTypeError(f"{row.name} takes {needed}, got {dtypes}")
        return dtypes[0]

    numpy, doc = _SEMANTICS[row.sums]
    return Intrinsic(row.name, len(wanted), result, numpy, doc)


def _matrix_native(row: MatrixProduct) -> Intrinsic:
    """An instruction on tiles, row by row: the sums, `a` and `b`."""

    def result(dtypes: tuple[DType, ...]) -> DType:
        rows, rest = divmod(dtypes[0].lanes, row.lanes)
        counts = (rows * row.lanes, rows * row.depth, row.lanes * row.depth)
        names = zip((row.sums, row.a, row.b), counts, strict=True)
        needed = tuple(DType(name).vector(max(count, 1)) for name, count in names)
        if rest or rows > row.rows or dtypes != needed:
            raise DTypeError(
                f"{row.name} takes up to {row.rows} rows of {row.lanes} {row.sums}, "
                f"{row.depth} {row.a} each, and {row.depth} rows of {row.lanes} "
                f"{row.b}, got {dtypes}"
            )
        return dtypes[0]

    def numpy(acc: Array, a: Array, b: Array) -> Array:
        acc, a, b = map(np.asarray, (acc, a, b))
        sums = acc.reshape(*acc.shape[:-1], -1, row.lanes)
        x = a.reshape(*a.shape[:-1], -1, row.steps, row.group, 1)
        y = b.reshape(*b.shape[:-1], 1, row.steps, row.lanes, row.group)
        y = np.swapaxes(y, -1, -2)
        add = _tile_floats if row.sums == "f32" else _tile_bytes
        return add(sums, x, y).reshape(acc.shape)

    doc = _TILE_FLOATS if row.sums == "f32" else _TILE_BYTES
    return Intrinsic(row.name, 3, result, numpy, doc)


def _transpose(count: int) -> Intrinsic:
    """The columns of a square, one after the other, from its rows."""
    name = f"transpose_{count}"

    def result(dtypes: tuple[DType, ...]) -> DType:
        row = dtypes[0]
        if row.lanes % count or any(other != row for other in dtypes):
            raise DTypeError(
                f"{name} takes {count} rows of one type, of {count} groups of lanes "
                f"each, got {dtypes}"
            )
        return row.scalar.vector(row.lanes * count)

    def numpy(*rows: Array) -> Array:
        square = np.stack(np.broadcast_arrays(*rows), axis=-2)
        groups = square.reshape(*square.shape[:-1], count, -1)
        return np.swapaxes(groups, -3, -2).reshape(*square.shape[:-2], -1)

    return Intrinsic(name, count, result, numpy, _COLUMNS)


def _tile_floats(sums: Array, a: Array, b: Array) -> Array:
    """Fused steps in two sums, of the even products and the odd ones."""
    a, b = (_flushed(x.astype(np.float32)) for x in (a, b))
    apart = np.zeros((*sums.shape[:-1], a.shape[-2], sums.shape[-1]), np.float32)
    for step in range(a.shape[-3]):
        apart = _step(a[..., step, :, :], b[..., step, :, :], apart)
    one = np.float32(1)
    both = _step(one, apart[..., 0, :], apart[..., 1, :])
    return _step(one, both, _flushed(sums))


def _tile_bytes(sums: Array, a: Array, b: Array) -> Array:
    with np.errstate(over="ignore"):
        return sums + (a.astype(np.int32) * b.astype(np.int32)).sum((-3, -2), np.int32)


def _dot_bf16(acc: Array, a0: Array, a1: Array, b0: Array, b1: Array) -> Array:
    """Two fused steps, the odd product first, like the processor."""
    a0, a1, b0, b1 = (
        _flushed(np.asarray(x).astype(np.float32)) for x in (a0, a1, b0, b1)
    )
    return _step(a0, b0, _step(a1, b1, _flushed(np.asarray(acc))))


def _step(a: Array | np.float32, b: Array, acc: Array) -> Array:
    with np.errstate(all="ignore"):
        exact = numeric.sum_to_odd(a.astype("f8") * b.astype("f8"), acc.astype("f8"))
        return _flushed(exact.astype(np.float32), exact)


def _flushed(near: Array, exact: Array | None = None) -> Array:
    """Flush to zero what is subnormal when rounded to the normal precision."""
    size = np.abs(near if exact is None else exact)
    return np.where(size < _TINY, np.copysign(np.float32(0), near), near)


def _dot_bytes(acc: Array, *factors: Array) -> Array:
    wide = [np.asarray(x).astype(np.int32) for x in factors]
    half = len(wide) // 2
    with np.errstate(over="ignore"):
        for a, b in zip(wide[:half], wide[half:], strict=True):
            acc = acc + a * b
    return acc


_TINY: Final = 2.0**-126 - 2.0**-151
_IN_BF16: Final = (
    "acc + a1*b1 + a0*b0, each step rounded once, subnormal operands and results "
    "flushed to 0 (AVX512-BF16); the pairs a0, a1 and b0, b1 are the even and odd "
    "lanes of the instruction's operands"
)
_IN_BYTES: Final = "acc + a0*b0 + a1*b1 + a2*b2 + a3*b3, which wraps"
# type of the sums -> semantics, on arrays and in words
_SEMANTICS: Final = {"f32": (_dot_bf16, _IN_BF16), "i32": (_dot_bytes, _IN_BYTES)}
_TILE_FLOATS: Final = (
    "sums[m, l] plus the sum over s of a[m, s, p] * b[s, l, p], for p = 0 and for "
    "p = 1, each step rounded once, subnormal operands and results flushed to 0 (AMX)"
)
_TILE_BYTES: Final = (
    "sums[m, l] plus all a[m, s, p] * b[s, l, p] over s and p, which wraps (AMX)"
)
_COLUMNS: Final = (
    "the rows of a square of elements, or of groups of neighbours, as its columns, one "
    "after the other"
)
TRANSPOSES: Final = {each.name: each for each in map(_transpose, (4, 8, 16))}
CPU_NATIVES: Final = {
    **{row.name: _native(row) for row in DOT_PRODUCTS.values()},
    **{row.name: _matrix_native(row) for row in MATRIX_PRODUCTS.values()},
    **TRANSPOSES,
}
