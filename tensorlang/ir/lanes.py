"""Simplify vectors that are regular across lanes: arithmetic on ramps and splats."""

from __future__ import annotations

from typing import Final

from tensorlang.ir.dtypes import i64
from tensorlang.ir.folding import constant_of
from tensorlang.ir.integers.division import remainder
from tensorlang.ir.integers.known import Known
from tensorlang.ir.nodes import (
    Binary,
    Bitcast,
    Cast,
    Compare,
    Const,
    Expr,
    Extract,
    LaneReduce,
    Ramp,
    Select,
    Shuffle,
    Splat,
    Unary,
    binary,
    whole,
)
from tensorlang.ir.visit import children

_LINEAR: Final = ("add", "sub")
_IDEMPOTENT: Final = ("min", "max", "and", "or")


def all_splat(expr: Expr) -> Expr | None:
    """An operation on splats only, done as a scalar and splat afterwards."""
    if not isinstance(expr, (Unary, Binary, Compare, Select, Cast, Bitcast)):
        return None
    values: list[Expr] = []
    for child in children(expr):
        if not isinstance(child, Splat):
            return None
        values.append(child.value)
    return Splat(_scalar(expr, values), expr.dtype.lanes)


def _scalar(expr: Expr, values: list[Expr]) -> Expr:
    match expr:
        case Unary(op=op):
            return Unary(op, *values)
        case Binary(op=op, contract=contract):
            return Binary(op, values[0], values[1], contract)
        case Compare(op=op):
            return Compare(op, *values)
        case Cast(dtype=dtype):
            return Cast(dtype.scalar, *values)
        case Bitcast(dtype=dtype):
            return Bitcast(dtype.scalar, *values)
    return Select(*values)


def ramp(expr: Ramp) -> Expr | None:
    """A ramp of one lane is its base; one with stride 0 is a splat."""
    if expr.lanes == 1:
        return expr.base
    if constant_of(expr.stride) == whole(0, expr.stride.dtype):
        return Splat(expr.base, expr.lanes)
    return None


def ramp_arithmetic(expr: Binary, known: Known) -> Expr | None:
    """A ramp and a ramp or splat of i64 as one ramp, or None."""
    a, b = expr.a, expr.b
    if expr.dtype.scalar != i64 or not isinstance(a, (Ramp, Splat)):
        return None
    if not isinstance(b, (Ramp, Splat)):
        return None
    lanes = expr.dtype.lanes
    (base_a, step_a), (base_b, step_b) = _line(a), _line(b)
    if expr.op in _LINEAR:
        return Ramp(
            Binary(expr.op, base_a, base_b), Binary(expr.op, step_a, step_b), lanes
        )
    if expr.op == "mul" and isinstance(a, Splat):
        a, b, base_a, step_a, base_b = b, a, base_b, step_b, base_a
    if expr.op == "mul" and isinstance(b, Splat):
        return Ramp(base_a * base_b, step_a * base_b, lanes)
    if expr.op in ("floordiv", "floormod") and isinstance(a, Ramp):
        return _divided(expr.op, a, b, known)
    return None


def _line(vector: Ramp | Splat) -> tuple[Expr, Expr]:
    """The first lane and the stride."""
    if isinstance(vector, Ramp):
        return vector.base, vector.stride
    return vector.value, Const(0, i64)


def _divided(op: str, a: Ramp, b: Expr, known: Known) -> Expr | None:
    """A ramp divided by a constant: a ramp, or a splat if all quotients agree."""
    divisor, stride = constant_of(b), constant_of(a.stride)
    if divisor is None or stride is None:
        return None
    d, step = int(divisor.value), int(stride.value)
    last = step * (a.lanes - 1)
    if d <= 0 or not (known.exact(a.base) and known.exact(a.base + last)):
        return None
    first = binary(op, a.base, d)
    if step % d == 0:
        if op == "floormod":
            return Splat(first, a.lanes)
        return Ramp(first, Const(step // d, i64), a.lanes)
    start = remainder(a.base, Const(d, i64), known)
    low, high = known.interval(a.base % d if start is None else start)
    if low is None or high is None:
        return None
    if low + min(0, last) < 0 or high + max(0, last) >= d:
        return None
    if op == "floordiv":
        return Splat(first, a.lanes)
    return Ramp(first, a.stride, a.lanes)


def extract(expr: Extract) -> Expr | None:
    """A lane of a splat or ramp as a scalar, or None; scalars are their own lane."""
    vector = expr.vector
    if vector.dtype.lanes == 1:
        return vector
    if isinstance(vector, Splat):
        return vector.value
    if isinstance(vector, Ramp):
        return vector.base + vector.stride * expr.lane
    return None


def picked(expr: Shuffle) -> Expr:
    """The lane selected by a shuffle of one lane."""
    (lane,) = expr.lanes_taken
    for vector in expr.vectors:
        if lane < vector.dtype.lanes:
            break
        lane -= vector.dtype.lanes
    return Extract(vector, lane)


def lane_reduce(expr: LaneReduce) -> Expr | None:
    """A splat reduced by an idempotent operation, or None."""
    if isinstance(expr.vector, Splat) and expr.op in _IDEMPOTENT:
        return expr.vector.value
    return expr.vector if expr.vector.dtype.lanes == 1 else None
