"""Simplify vectors that are regular across lanes: arithmetic on ramps and splats."""

from __future__ import annotations

from typing import Final

from tensorlang.ir import nodes as ir
from tensorlang.ir.dtypes import i64
from tensorlang.ir.integers.division import remainder
from tensorlang.ir.integers.known import Known
from tensorlang.ir.simplification.folding import constant_of
from tensorlang.ir.visit import children

_LINEAR: Final = ("add", "sub")
_IDEMPOTENT: Final = ("min", "max", "and", "or")


def all_splat(expr: ir.Expr) -> ir.Expr | None:
    """An operation on splats only, done as a scalar and splat afterwards."""
    if not isinstance(
        expr, (ir.Unary, ir.Binary, ir.Compare, ir.Select, ir.Cast, ir.Bitcast)
    ):
        return None
    values: list[ir.Expr] = []
    for child in children(expr):
        if not isinstance(child, ir.Splat):
            return None
        values.append(child.value)
    return ir.Splat(_scalar(expr, values), expr.dtype.lanes)


def _scalar(expr: ir.Expr, values: list[ir.Expr]) -> ir.Expr:
    match expr:
        case ir.Unary(op=op):
            return ir.Unary(op, *values)
        case ir.Binary(op=op, contract=contract):
            return ir.Binary(op, values[0], values[1], contract)
        case ir.Compare(op=op):
            return ir.Compare(op, *values)
        case ir.Cast(dtype=dtype):
            return ir.Cast(dtype.scalar, *values)
        case ir.Bitcast(dtype=dtype):
            return ir.Bitcast(dtype.scalar, *values)
    return ir.Select(*values)


def ramp(expr: ir.Ramp) -> ir.Expr | None:
    """A ramp of one lane is its base; one with stride 0 is a splat."""
    if expr.lanes == 1:
        return expr.base
    if constant_of(expr.stride) == ir.whole(0, expr.stride.dtype):
        return ir.Splat(expr.base, expr.lanes)
    return None


def ramp_arithmetic(expr: ir.Binary, known: Known) -> ir.Expr | None:
    """A ramp and a ramp or splat of i64 as one ramp, or None."""
    a, b = expr.a, expr.b
    if expr.dtype.scalar != i64 or not isinstance(a, (ir.Ramp, ir.Splat)):
        return None
    if not isinstance(b, (ir.Ramp, ir.Splat)):
        return None
    lanes = expr.dtype.lanes
    (base_a, step_a), (base_b, step_b) = _line(a), _line(b)
    if expr.op in _LINEAR:
        return ir.Ramp(
            ir.Binary(expr.op, base_a, base_b),
            ir.Binary(expr.op, step_a, step_b),
            lanes,
        )
    if expr.op == "mul" and isinstance(a, ir.Splat):
        a, b, base_a, step_a, base_b = b, a, base_b, step_b, base_a
    if expr.op == "mul" and isinstance(b, ir.Splat):
        return ir.Ramp(base_a * base_b, step_a * base_b, lanes)
    if expr.op in ("floordiv", "floormod") and isinstance(a, ir.Ramp):
        return _divided(expr.op, a, b, known)
    return None


def _line(vector: ir.Ramp | ir.Splat) -> tuple[ir.Expr, ir.Expr]:
    """The first lane and the stride."""
    if isinstance(vector, ir.Ramp):
        return vector.base, vector.stride
    return vector.value, ir.Const(0, i64)


def _divided(op: str, a: ir.Ramp, b: ir.Expr, known: Known) -> ir.Expr | None:
    """A ramp divided by a constant: a ramp, or a splat if all quotients agree."""
    divisor, stride = constant_of(b), constant_of(a.stride)
    if divisor is None or stride is None:
        return None
    d, step = int(divisor.value), int(stride.value)
    last = step * (a.lanes - 1)
    if d <= 0 or not (known.exact(a.base) and known.exact(a.base + last)):
        return None
    first = ir.binary(op, a.base, d)
    if step % d == 0:
        if op == "floormod":
            return ir.Splat(first, a.lanes)
        return ir.Ramp(first, ir.Const(step // d, i64), a.lanes)
    start = remainder(a.base, ir.Const(d, i64), known)
    low, high = known.interval(a.base % d if start is None else start)
    if low is None or high is None:
        return None
    if low + min(0, last) < 0 or high + max(0, last) >= d:
        return None
    if op == "floordiv":
        return ir.Splat(first, a.lanes)
    return ir.Ramp(first, a.stride, a.lanes)


def extract(expr: ir.Extract) -> ir.Expr | None:
    """A lane of a splat or ramp as a scalar, or None; scalars are their own lane."""
    vector = expr.vector
    if vector.dtype.lanes == 1:
        return vector
    if isinstance(vector, ir.Splat):
        return vector.value
    if isinstance(vector, ir.Ramp):
        return vector.base + vector.stride * expr.lane
    return None


def picked(expr: ir.Shuffle) -> ir.Expr:
    """The lane selected by a shuffle of one lane."""
    (lane,) = expr.lanes_taken
    for vector in expr.vectors:
        if lane < vector.dtype.lanes:
            break
        lane -= vector.dtype.lanes
    return ir.Extract(vector, lane)


def lane_reduce(expr: ir.LaneReduce) -> ir.Expr | None:
    """A splat reduced by an idempotent operation, or None."""
    if isinstance(expr.vector, ir.Splat) and expr.op in _IDEMPOTENT:
        return expr.vector.value
    return expr.vector if expr.vector.dtype.lanes == 1 else None
