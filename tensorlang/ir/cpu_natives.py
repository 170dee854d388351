"""Natives that only some processors have; schedules bring them in by `tensorize`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tensorlang.errors import DTypeError
from tensorlang.ir import numeric
from tensorlang.ir.dtypes import DType, bf16, f32
from tensorlang.ir.natives import Intrinsic


def _dot_type(dtypes: tuple[DType, ...]) -> DType:
    lanes = dtypes[0].lanes
    wanted = (f32.vector(lanes), *[bf16.vector(lanes)] * 4)
    if dtypes != wanted:
        raise DTypeError(f"dpbf16ps takes {wanted}, got {dtypes}")
    return dtypes[0]


def _dot(acc: Any, a0: Any, a1: Any, b0: Any, b1: Any) -> Any:
    """Two fused steps, the odd product first, as the processor does them."""
    a0, a1, b0, b1 = (np.asarray(x).astype(np.float32) for x in (a0, a1, b0, b1))
    return numeric.fma(a0, b0, numeric.fma(a1, b1, acc))


CPU_NATIVES: Final = {
    "dpbf16ps": Intrinsic(
        "dpbf16ps",
        5,
        _dot_type,
        _dot,
        "acc + a1*b1 + a0*b0, each step rounded once (AVX512-BF16); the pairs a0, a1 "
        "and b0, b1 are the even and odd lanes of the instruction's operands",
    ),
}
