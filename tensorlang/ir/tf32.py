"""tf32, the f32 of tensor cores, with 10 instead of 23 fraction bits.

It is no type, but a rounding that definitions apply explicitly, so that nothing is less
exact than its text says.
"""

from __future__ import annotations

from typing import Final

from tensorlang.errors import DTypeError
from tensorlang.ir.dtypes import f32, u32
from tensorlang.ir.nodes import Const, Expr, ExprLike, as_expr, bitcast

ERROR: Final = 2.0**-11  # relative, of one rounding
_HALF: Final = 0x1000
_KEPT: Final = 0xFFFFE000


def tf32(x: ExprLike) -> Expr:
    """f32 rounded to tf32, to nearest with ties away from zero.

    Equals `cvt.rna.tf32.f32` for all numbers and infinities.

    Raises:
        DTypeError: it is no f32.
    """
    value = as_expr(x)
    if value.dtype != f32:
        raise DTypeError(f"tf32 rounds f32, not {value.dtype}")
    bits = bitcast(u32, value) + Const(_HALF, u32)
    return bitcast(f32, bits & Const(_KEPT, u32))
