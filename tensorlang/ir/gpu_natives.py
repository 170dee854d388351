"""Functions that GPUs compute by one instruction, approximately or for finite values.

Algorithms that declare a tolerance, or finite inputs, may use them: bits differ between
devices, and from those of the interpreter, which rounds the exact value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from tensorlang.errors import DTypeError
from tensorlang.ir.dtypes import DType, f32
from tensorlang.ir.natives import Intrinsic
from tensorlang.ir.numeric import Array

_TINY: Final = np.finfo(np.float32).tiny


def _single(name: str) -> Callable[[tuple[DType, ...]], DType]:
    def result(dtypes: tuple[DType, ...]) -> DType:
        for dtype in dtypes:
            if dtype.scalar != f32 or dtype != dtypes[0]:
                raise DTypeError(f"{name} takes f32, not {dtype}")
        return dtypes[0]

    return result


def _flushed(x: Array) -> Array:
    made: Array = np.where(np.abs(x) < _TINY, np.copysign(np.float32(0), x), x)
    return made


def _exp2(x: Array) -> Array:
    with np.errstate(all="ignore"):
        wide = np.exp2(_flushed(np.asarray(x)).astype(np.float64))
        return _flushed(wide.astype(np.float32))


GPU_NATIVES: Final = {
    "approximate_exp2": Intrinsic(
        "approximate_exp2",
        1,
        _single("approximate_exp2"),
        _exp2,
        "2 to the power x, with an error of at most 2 ulp; subnormal numbers are 0",
    ),
    "greater_number": Intrinsic(
        "greater_number",
        2,
        _single("greater_number"),
        np.fmax,
        "the greater of two numbers; if one is NaN, the other one",
    ),
}
