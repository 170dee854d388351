"""The interval of each kind of node, from the intervals of its children."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from tensorlang.ir import nodes as ir
from tensorlang.ir.by_class import by_class
from tensorlang.ir.dtypes import DType
from tensorlang.ir.integers.intervals import (
    BINARY,
    UNKNOWN,
    Interval,
    absolute,
    hull,
    negative,
)

Of: TypeAlias = Callable[[ir.Expr], Interval]
_TRUTH: Final[Interval] = (0, 1)


def type_limits(dtype: DType) -> Interval:
    """The limits of the type; unbounded for floats."""
    return UNKNOWN if dtype.is_float else dtype.limits


@by_class
def node_interval(expr: ir.Expr, of: Of) -> Interval:
    """The interval of a node, given those of its children by `of`.

    It bounds the exact result, before wrapping.
    """
    del of
    return type_limits(expr.dtype)


@node_interval.register
def _(expr: ir.Const, _of: Of) -> Interval:
    return int(expr.value), int(expr.value)


@node_interval.register
def _(expr: ir.Unary, of: Of) -> Interval:
    inner = of(expr.a)
    if expr.op == "neg":
        return negative(inner)
    if expr.op == "abs":
        return absolute(inner)
    if expr.dtype.is_bool:
        return BINARY["sub"]((1, 1), inner)
    if expr.dtype.kind == "int":
        return BINARY["sub"]((-1, -1), inner)
    return BINARY["sub"]((expr.dtype.limits[1],) * 2, inner)


@node_interval.register
def _(expr: ir.Binary, of: Of) -> Interval:
    return BINARY[expr.op](of(expr.a), of(expr.b))


@node_interval.register
def _(_expr: ir.Compare, _of: Of) -> Interval:
    return _TRUTH


@node_interval.register
def _(expr: ir.Select, of: Of) -> Interval:
    return hull(of(expr.a), of(expr.b))


@node_interval.register
def _(expr: ir.Cast, of: Of) -> Interval:
    if expr.dtype.is_bool:
        return _TRUTH
    return UNKNOWN if expr.a.dtype.is_float else of(expr.a)


@node_interval.register
def _(expr: ir.Call, _of: Of) -> Interval:
    if expr.name in ("popcount", "clz"):
        return 0, expr.dtype.bits
    return type_limits(expr.dtype)


@node_interval.register
def _(expr: ir.Ramp, of: Of) -> Interval:
    steps = BINARY["mul"](of(expr.stride), (0, expr.lanes - 1))
    return BINARY["add"](of(expr.base), steps)


@node_interval.register
def _(expr: ir.Splat, of: Of) -> Interval:
    return of(expr.value)


@node_interval.register
def _(expr: ir.Extract, of: Of) -> Interval:
    return of(expr.vector)


@node_interval.register
def _(expr: ir.Insert, of: Of) -> Interval:
    return hull(of(expr.vector), of(expr.value))


@node_interval.register
def _(expr: ir.Shuffle, of: Of) -> Interval:
    total = of(expr.vectors[0])
    for vector in expr.vectors[1:]:
        total = hull(total, of(vector))
    return total


@node_interval.register
def _(expr: ir.LaneReduce, of: Of) -> Interval:
    if expr.op in ("min", "max"):
        return of(expr.vector)
    return type_limits(expr.dtype)
