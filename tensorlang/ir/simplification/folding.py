"""Constant folding and algebraic identities of single operations.

Constants are folded by `tensorlang.ir.semantics`, like the interpreter computes them;
operations that fault are kept. No rule changes a float result, including the sign of
zero.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tensorlang.ir import nodes as ir
from tensorlang.ir.collectives import is_collective
from tensorlang.ir.dtypes import DType
from tensorlang.ir.intrinsics import INTRINSICS
from tensorlang.ir.semantics import apply
from tensorlang.ir.visit import children

_COMMUTING: Final = ("add", "mul", "min", "max", "and", "or", "xor")
_ASSOCIATIVE: Final = ("add", "mul", "and", "or", "xor", "min", "max")


def constant_of(expr: ir.Expr) -> ir.Const | None:
    """The constant that an expression is in all lanes, or None."""
    if isinstance(expr, ir.Splat):
        expr = expr.value
    return expr if isinstance(expr, ir.Const) else None


def fold(expr: ir.Expr) -> ir.Expr | None:
    """Fold an operation on constants; None if it cannot be."""
    if not isinstance(
        expr, (ir.Unary, ir.Binary, ir.Compare, ir.Select, ir.Cast, ir.Bitcast, ir.Call)
    ):
        return None
    operands: list[ir.Const] = []
    for child in children(expr):
        known = constant_of(child) if isinstance(child, ir.Expr) else None
        if known is None:
            return None
        operands.append(known)
    if not operands or _faults(expr, operands):
        return None
    if is_collective(expr):
        return None
    if isinstance(expr, ir.Call) and not INTRINSICS[expr.name].pure:
        return None
    values = [np.asarray(const.value).astype(const.dtype.numpy) for const in operands]
    scalar = _scalar_form(expr)
    result = np.asarray(apply(scalar, values)).item()
    return ir.splat(ir.Const(result, expr.dtype.scalar), expr.dtype.lanes)


def _scalar_form(expr: ir.Expr) -> ir.Expr:
    """One lane of an operation (operands do not matter, only its own fields)."""
    if isinstance(expr, ir.Binary):
        return ir.Binary(expr.op, _lane(expr.a), _lane(expr.b))
    if isinstance(expr, ir.Cast):
        return ir.Cast(expr.dtype.scalar, _lane(expr.a))
    return expr


def _lane(expr: ir.Expr) -> ir.Expr:
    return expr.value if isinstance(expr, ir.Splat) else expr


def _faults(expr: ir.Expr, operands: list[ir.Const]) -> bool:
    """Whether to keep an operation: faults, and min and max of zeros (inexact)."""
    if not isinstance(expr, ir.Binary):
        return False
    right = operands[1].value
    if expr.op in ("floordiv", "floormod"):
        return right == 0
    zeros = expr.dtype.is_float and operands[0].value == 0 and right == 0
    return zeros and expr.op in ("min", "max")


def identity(expr: ir.Binary) -> ir.Expr | None:
    """Apply rules such as `x + 0`, `x * 1` and `x & x`; None if none applies."""
    a, b = expr.a, expr.b
    left, right = constant_of(a), constant_of(b)
    if left is not None and right is None and expr.op in _COMMUTING:
        swapped = ir.Binary(expr.op, b, a, expr.contract)
        found = identity(swapped)
        return swapped if found is None and not expr.dtype.is_float else found
    if expr.dtype.is_float:
        return _float_identity(expr, right)
    if a == b and expr.op in _SAME:
        return _known(_SAME[expr.op], a, expr.dtype)
    if right is None:
        return None
    if expr.op in ("shl", "shr") and not 0 <= right.value < expr.dtype.bits:
        return _shifted_out(expr)
    left_over = _RIGHT.get((expr.op, _role(right)))
    if left_over is not None:
        return _known(left_over, a, expr.dtype)
    return _joined(expr, right)


def _shifted_out(expr: ir.Binary) -> ir.Expr:
    """The result of a shift by the width or more: 0, or copies of the sign."""
    if expr.op == "shl" or expr.dtype.kind == "uint":
        return _known("zero", expr.a, expr.dtype)
    most = ir.Const(expr.dtype.bits - 1, expr.dtype.scalar)
    return ir.Binary("shr", expr.a, ir.splat(most, expr.dtype.lanes))


def _joined(expr: ir.Binary, right: ir.Const) -> ir.Expr | None:
    """`(x op c) op d` as `x op (c op d)`; valid for wrapping integers."""
    a = expr.a
    if not isinstance(a, ir.Binary) or a.op != expr.op or expr.op not in _ASSOCIATIVE:
        return None
    inner = constant_of(a.b)
    if inner is None:
        return None
    folded = fold(ir.Binary(expr.op, inner, right))
    if folded is None:
        return None
    return ir.Binary(expr.op, a.a, ir.splat(folded, expr.dtype.lanes))


def _float_identity(expr: ir.Binary, right: ir.Const | None) -> ir.Expr | None:
    if right is None or expr.contract:
        return None
    value = float(right.value)
    negative = bool(np.signbit(value))
    unchanged = {
        "add": value == 0 and negative,  # x + -0 is x for both zeros; x + 0 is not
        "sub": value == 0 and not negative,
        "mul": value == 1,
        "div": value == 1,
    }
    return expr.a if unchanged.get(expr.op, False) else None


# the result of `x op x`, and of `x op c` for c with a role
_SAME: Final = {
    "sub": "zero",
    "xor": "zero",
    "and": "x",
    "or": "x",
    "min": "x",
    "max": "x",
}
_RIGHT: Final = {
    ("add", "zero"): "x",
    ("sub", "zero"): "x",
    ("or", "zero"): "x",
    ("xor", "zero"): "x",
    ("shl", "zero"): "x",
    ("shr", "zero"): "x",
    ("and", "zero"): "zero",
    ("mul", "zero"): "zero",
    ("mul", "one"): "x",
    ("floordiv", "one"): "x",
    ("floormod", "one"): "zero",
    ("and", "ones"): "x",
    ("or", "ones"): "ones",
}


def _role(const: ir.Const) -> str:
    """`zero`, `one` or `ones` (all bits set, including a bool's true)."""
    if const.value == 0:
        return "zero"
    ones = -1 if const.dtype.kind == "int" else const.dtype.limits[1]
    if const.value == ones:
        return "ones"
    return "one" if const.value == 1 else ""


def _known(what: str, x: ir.Expr, dtype: DType) -> ir.Expr:
    if what == "x":
        return x
    ones = True if dtype.is_bool else -1
    value = ones if what == "ones" else 0
    return ir.splat(ir.Const(value, dtype.scalar), dtype.lanes)
