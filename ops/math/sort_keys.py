"""Order-preserving unsigned keys for sorting, and their decoding.

NaN has the largest key, whatever its sign. Keys that are decoded to values are exact:
-0 precedes 0; for sorts that return positions, -0 and 0 share a key.
"""

from __future__ import annotations

from typing import Final

from tensorlang.ir.dtypes import DType, boolean, u8, u16, u32, u64
from tensorlang.ir.nodes import Bitcast, Const, Expr, Select

_UNSIGNED: Final = {8: u8, 16: u16, 32: u32, 64: u64}


def key_type(dtype: DType) -> DType:
    """The key type: u64 for 64-bit values, u32 for all others."""
    return u64 if dtype.bits == 64 else u32


def digits(dtype: DType) -> int:
    """The number of significant bytes of a key."""
    return 1 if dtype == boolean else dtype.bits // 8


def key_of(value: Expr, *, exact: bool, descending: bool) -> Expr:
    """Encode a value; with `exact`, -0 and 0 have different keys."""
    dtype = value.dtype
    if dtype == boolean:
        key: Expr = value.cast(u32)
    elif dtype.is_float:
        key = _float_key(value, exact=exact)
    else:
        kind = _UNSIGNED[dtype.bits]
        key = value if dtype == kind else Bitcast(kind, value)
        if dtype != kind:
            key = key ^ (1 << (dtype.bits - 1))
    if descending:
        key = ~key if dtype != boolean else Const(1, u32) - key
    return key.cast(key_type(dtype))


def _float_key(value: Expr, *, exact: bool) -> Expr:
    dtype = value.dtype
    kind = _UNSIGNED[dtype.bits]
    top = 1 << (dtype.bits - 1)
    zero = Const(0.0, dtype)
    held = value if exact else Select(value.equal(zero), zero, value)
    bits = Bitcast(kind, held)
    negative = bits >= top
    key = Select(negative, ~bits, bits ^ top)
    largest = Const((1 << dtype.bits) - 1, kind)
    return Select(value.not_equal(value), largest, key)


def value_of(key: Expr, dtype: DType, *, descending: bool) -> Expr:
    """Decode an exact key."""
    if dtype == boolean:
        given = Const(1, u32) - key if descending else key
        return given.not_equal(0)
    kind = _UNSIGNED[dtype.bits]
    given = key.cast(kind)
    given = ~given if descending else given
    top = 1 << (dtype.bits - 1)
    if dtype.is_float:
        return Bitcast(dtype, Select(given >= top, given ^ top, ~given))
    return given if dtype == kind else Bitcast(dtype, given ^ top)
