"""Natives of some CPUs only, introduced by `tensorize`."""

from __future__ import annotations

from typing import Final

import numpy as np

from tensorlang.errors import DTypeError
from tensorlang.ir import numeric
from tensorlang.ir.dtypes import DType, bf16, f32
from tensorlang.ir.natives import Intrinsic
from tensorlang.ir.numeric import Array


def _dot_type(dtypes: tuple[DType, ...]) -> DType:
    lanes = dtypes[0].lanes
    wanted = (f32.vector(lanes), *[bf16.vector(lanes)] * 4)
    if dtypes != wanted:
        raise DTypeError(f"dpbf16ps takes {wanted}, got {dtypes}")
    return dtypes[0]


def _dot(acc: Array, a0: Array, a1: Array, b0: Array, b1: Array) -> Array:
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


_TINY: Final = 2.0**-126 - 2.0**-151
CPU_NATIVES: Final = {
    "dpbf16ps": Intrinsic(
        "dpbf16ps",
        5,
        _dot_type,
        _dot,
        "acc + a1*b1 + a0*b0, each step rounded once, subnormal operands and results "
        "flushed to 0 (AVX512-BF16); the pairs a0, a1 and b0, b1 are the even and odd "
        "lanes of the instruction's operands",
    ),
}
