"""Further reducers: extremes that propagate NaN, like NumPy and PyTorch.

The built-in float `max` ignores NaN.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from tensorlang.ir.definitions.reducers import State, builtin, highest, lowest, reducer
from tensorlang.ir.dtypes import DType, i32, i64, u32, u64
from tensorlang.ir.nodes import Binary, Bitcast, Const, Expr, Reducer, Select

_LAST: Final = (1 << 32) - 1
_BITS: Final = {"f32": u32, "f64": u64}
_SIZE: Final = {"f32": (1 << 31) - 1, "f64": (1 << 63) - 1}
_FRACTION: Final = {"f32": 23, "f64": 52}


def _worst(name: str, dtype: DType) -> Expr:
    """The identity: it loses against every value."""
    return lowest(dtype) if name.endswith("max") else highest(dtype)


@cache
def extreme(name: str, dtype: DType) -> Reducer:
    """`max` or `min` of integers, or of floats together with their bits.

    The state for floats is an extreme, invalid if a NaN occurred, and the maximum of
    all bits without the sign, which tell whether one did.
    """
    if not dtype.is_float:
        found = builtin(name, (dtype,))
        assert found is not None
        return found
    kind = _BITS[dtype.name]

    def combine(a: State, b: State) -> tuple[Expr, ...]:
        better = a[0] > b[0] if name == "max" else a[0] < b[0]
        return Select(better, a[0], b[0]), Binary("max", a[1], b[1])

    identity = _worst(name, dtype), Const(0, kind)
    return reducer(f"{name}_and_bits", (dtype, kind), identity, combine)


def bits_of(value: Expr) -> Expr:
    """The bits of a float without its sign."""
    kind = _BITS[value.dtype.name]
    return Bitcast(kind, value) & _SIZE[value.dtype.name]


def or_nan(best: Expr, bits: Expr) -> Expr:
    """The extreme, or NaN if the bits show that there was one."""
    kind = best.dtype
    infinity = _SIZE[kind.name] >> _FRACTION[kind.name] << _FRACTION[kind.name]
    return Select(bits > infinity, Const(float("nan"), kind), best)


@cache
def extreme_at(name: str, dtype: DType) -> Reducer:
    """`argmax` or `argmin`: the extreme and its lowest position; NaN is the extreme."""
    if not dtype.is_float:
        found = builtin(name, (dtype, i64))
        assert found is not None
        return found

    def combine(left: State, right: State) -> tuple[Expr, ...]:
        (a, at), (b, there) = left, right
        beats = a >= b if name == "argmax" else a <= b
        beaten = b >= a if name == "argmax" else b <= a
        not_below = beats | a.not_equal(a)
        not_above = beaten | b.not_equal(b)
        first = not_below & (~not_above | (at < there))
        return Select(first, a, b), Select(first, at, there)

    identity = _worst(name, dtype), Const(i64.limits[1], i64)
    return reducer(f"{name}_or_nan", (dtype, i64), identity, combine)


def packs(dtype: DType) -> bool:
    """Whether a value and its position fit into 64 bits."""
    return dtype.bits <= 32


def packed(name: str, value: Expr, position: Expr) -> Expr:
    """Pack value and position into one number, for a reduction by plain maximum.

    The upper half orders the values, NaN above all; the lower half orders positions,
    lower ones first.
    """
    key = _key(value)
    if name == "argmin":
        key = ~key
    if value.dtype.is_float:
        largest = Const(i32.limits[1], i32)
        key = Select(value.not_equal(value), largest, key)
    return (key.cast(i64) << 32) + (_LAST - position)


def position_of(best: Expr) -> Expr:
    """The position in a packed value."""
    return Const(_LAST, i64) - (best & _LAST)


def _key(value: Expr) -> Expr:
    """A signed integer with the order of the values; 0 and -0 are equal."""
    dtype = value.dtype
    if dtype.is_float:
        bits = Bitcast(i32, value + 0.0)
        return bits ^ ((bits >> 31) & i32.limits[1])
    if dtype == u32:
        return Bitcast(i32, value ^ (1 << 31))
    return value.cast(i32)
