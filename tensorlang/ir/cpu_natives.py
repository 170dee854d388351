"""Natives of some CPUs only, introduced by `tensorize`: dot product instructions."""

from __future__ import annotations

from typing import Final

import numpy as np

from tensorlang.errors import DTypeError
from tensorlang.instructions import DOT_PRODUCTS, DotProduct
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


def _dot_bf16(acc: Array, a0: Array, a1: Array, b0: Array, b1: Array) -> Array:
    """Two fused steps, the odd product first, like the processor."""
    a0, a1, b0, b1 = (
        _flushed(np.asarray(x).astype(np.float32)) for x in (a0, a1, b0, b1)
    )
    return _step(a0, b0, _step(a1, b1, _flushed(np.asarray(acc))))


def _step(a: Array, b: Array, acc: Array) -> Array:
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
CPU_NATIVES: Final = {row.name: _native(row) for row in DOT_PRODUCTS.values()}
