"""Unsigned numbers that are ordered as values are, and back: what a sort compares.

NaN comes last, whatever its sign. -0 is 0 where only positions are asked for; where the
values come back it stands before 0, which it equals.
"""

from __future__ import annotations

from typing import Final

from tensorlang.ir.dtypes import DType, boolean, u8, u16, u32, u64
from tensorlang.ir.nodes import Bitcast, Const, Expr, Select

_UNSIGNED: Final = {8: u8, 16: u16, 32: u32, 64: u64}


def key_type(dtype: DType) -> DType:
    """The type of keys: u32, or u64 for values of 64 bits."""
    return u64 if dtype.bits == 64 else u32


def digits(dtype: DType) -> int:
    """How many bytes of a key differ between values."""
    return 1 if dtype == boolean else dtype.bits // 8


def key_of(value: Expr, *, exact: bool, descending: bool) -> Expr:
    """The key of a value; `exact` keeps -0 apart."""
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
    """The value that an exact key stands for."""
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
