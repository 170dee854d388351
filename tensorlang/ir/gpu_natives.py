"""Functions that GPUs compute approximately, by one instruction.

Algorithms that declare a tolerance may use them: bits differ between devices, and from
those of the interpreter, which rounds the exact value.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tensorlang.errors import DTypeError
from tensorlang.ir.dtypes import DType, f32
from tensorlang.ir.natives import Intrinsic
from tensorlang.ir.numeric import Array

_TINY: Final = np.finfo(np.float32).tiny


def _single(dtypes: tuple[DType, ...]) -> DType:
    (dtype,) = dtypes
    if dtype.scalar != f32:
        raise DTypeError(f"approximate_exp2 takes f32, not {dtype}")
    return dtype


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
        _single,
        _exp2,
        "2 to the power x, with an error of at most 2 ulp; subnormal numbers are 0",
    )
}
