"""Order-preserving unsigned keys for sorting, and their decoding.

NaN has the largest key, whatever its sign. Keys that are decoded to values are exact:
-0 precedes 0; for sorts that return positions, -0 and 0 share a key.
"""

from __future__ import annotations

from typing import Final

from tensorlang import ir

_UNSIGNED: Final = {8: ir.u8, 16: ir.u16, 32: ir.u32, 64: ir.u64}


def key_type(dtype: ir.DType) -> ir.DType:
    """The key type: u64 for 64-bit values, u32 for all others."""
    return ir.u64 if dtype.bits == 64 else ir.u32


def digits(dtype: ir.DType) -> int:
    """The number of significant bytes of a key."""
    return 1 if dtype == ir.boolean else dtype.bits // 8


def key_of(value: ir.Expr, *, exact: bool, descending: bool) -> ir.Expr:
    """Encode a value; with `exact`, -0 and 0 have different keys."""
    dtype = value.dtype
    if dtype == ir.boolean:
        key: ir.Expr = value.cast(ir.u32)
    elif dtype.is_float:
        key = _float_key(value, exact=exact)
    else:
        kind = _UNSIGNED[dtype.bits]
        key = value if dtype == kind else ir.Bitcast(kind, value)
        if dtype != kind:
            key = key ^ (1 << (dtype.bits - 1))
    if descending:
        key = ~key if dtype != ir.boolean else ir.Const(1, ir.u32) - key
    return key.cast(key_type(dtype))


def _float_key(value: ir.Expr, *, exact: bool) -> ir.Expr:
    dtype = value.dtype
    kind = _UNSIGNED[dtype.bits]
    top = 1 << (dtype.bits - 1)
    zero = ir.Const(0.0, dtype)
    held = value if exact else ir.Select(value.equal(zero), zero, value)
    bits = ir.Bitcast(kind, held)
    negative = bits >= top
    key = ir.Select(negative, ~bits, bits ^ top)
    largest = ir.Const((1 << dtype.bits) - 1, kind)
    return ir.Select(value.not_equal(value), largest, key)


def value_of(key: ir.Expr, dtype: ir.DType, *, descending: bool) -> ir.Expr:
    """Decode an exact key."""
    if dtype == ir.boolean:
        given = ir.Const(1, ir.u32) - key if descending else key
        return given.not_equal(0)
    kind = _UNSIGNED[dtype.bits]
    given = key.cast(kind)
    given = ~given if descending else given
    top = 1 << (dtype.bits - 1)
    if dtype.is_float:
        return ir.Bitcast(dtype, ir.Select(given >= top, given ^ top, ~given))
    return given if dtype == kind else ir.Bitcast(dtype, given ^ top)
