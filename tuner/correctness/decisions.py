"""Decision values: inputs at which comparisons of a function change their outcome.

`select(x[i] * 2 > 6, ...)` decides at x = 3: the other operand of a constant is traced
back to the element it is computed from. A kernel that is wrong on only one side of such
a value is only detected by values on both sides and at it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import numpy as np

from tensorlang.errors import TensorlangError
from tensorlang.ir import nodes as ir
from tensorlang.ir.dtypes import DType
from tensorlang.ir.visit import walk
from tensorlang.tuner.correctness.special_values import Constants

_CHOICES: Final = ("min", "max", *ir.COMPARISONS)
_DEEPEST: Final = 32
_MOST: Final = 64  # values per type
Number: TypeAlias = Any  # a literal, or a NumPy scalar with specific bits
# inverses of operations with a constant right operand; others keep the value
_INVERSE: Final[Mapping[str, Callable[[Number, Number], Number]]] = {
    "add": lambda c, k: c - k,
    "sub": lambda c, k: c + k,
    "mul": lambda c, k: c / k if isinstance(c, float) else c // k,
    "div": lambda c, k: c * k,
    "floordiv": lambda c, k: c * k,
    "xor": lambda c, k: c ^ k,
    "shl": lambda c, k: c >> k,
    "shr": lambda c, k: c << k,
}


def decisions(func: ir.Function) -> Constants:
    """Decision values and their neighbours, by dtype."""
    lets = {n.var: n.value for n in walk(func.body) if isinstance(n, ir.Let)}
    found: dict[DType, dict[Number, None]] = defaultdict(dict)
    for node in walk(func.body):
        if isinstance(node, ir.Compare | ir.Binary) and node.op in _CHOICES:
            for side, other in ((node.a, node.b), (node.b, node.a)):
                constant = _constant(other, lets)
                if constant is not None:
                    for dtype, value in _sources(side, constant, lets, _DEEPEST):
                        found[dtype].update(dict.fromkeys(_near(dtype, value)))
    return {
        dtype.numpy: tuple(values)[:_MOST]
        for dtype, values in sorted(found.items(), key=lambda one: one[0].name)
    }


def _constant(expr: ir.Expr, lets: Mapping[ir.Var, ir.Expr]) -> Number:
    """The value of a literal; None for anything else."""
    while isinstance(expr, ir.Splat | ir.Var | ir.Cast):
        if isinstance(expr, ir.Var):
            if expr not in lets:
                return None
            expr = lets[expr]
        else:
            expr = expr.value if isinstance(expr, ir.Splat) else expr.a
    return expr.value if isinstance(expr, ir.Const) else None


def _sources(
    expr: ir.Expr, value: Number, lets: Mapping[ir.Var, ir.Expr], depth: int
) -> Iterator[tuple[DType, Number]]:
    """Elements and the values for which an expression has a given value."""
    if depth == 0:
        return
    if isinstance(expr, ir.Load):
        yield expr.dtype.scalar, value
    elif isinstance(expr, ir.Var):
        if expr in lets:
            yield from _sources(lets[expr], value, lets, depth - 1)
    elif isinstance(expr, ir.Bitcast) and expr.dtype.lanes == 1:
        bits = np.array(_fitting(expr.dtype, value), expr.dtype.numpy)
        yield from _sources(expr.a, bits.view(expr.a.dtype.numpy)[()], lets, depth)
    elif isinstance(expr, ir.Binary):
        for operand, inner in _undone(expr, value, lets):
            yield from _sources(operand, inner, lets, depth - 1)
    elif isinstance(expr, ir.Unary):
        inner = ~value if expr.op == "not" and isinstance(value, int) else -value
        yield from _sources(expr.a, inner, lets, depth - 1)
        if expr.op == "abs":
            yield from _sources(expr.a, value, lets, depth - 1)
    elif isinstance(expr, ir.Cast | ir.Splat):
        inner = expr.a if isinstance(expr, ir.Cast) else expr.value
        yield from _sources(inner, value, lets, depth - 1)


def _undone(
    expr: ir.Binary, value: Number, lets: Mapping[ir.Var, ir.Expr]
) -> Iterator[tuple[ir.Expr, Number]]:
    """The non-constant operand, and its value if the result is `value`."""
    left, right = _constant(expr.a, lets), _constant(expr.b, lets)
    if right is not None:
        yield expr.a, _inverted(expr.op, value, right)
    elif left is not None:
        swapped = left - value if expr.op == "sub" else value
        yield expr.b, _inverted(expr.op, value, left) if expr.op != "sub" else swapped
    elif expr.a == expr.b and expr.op == "mul" and value > 0:
        yield expr.a, math.sqrt(value)


def _inverted(op: str, value: Number, constant: Number) -> Number:
    try:
        return _INVERSE[op](value, constant) if op in _INVERSE else value
    except (ZeroDivisionError, OverflowError, TypeError, ValueError):
        return value


def _near(dtype: DType, value: Number) -> Iterator[Number]:
    """A value, its neighbours in the type, and others further on both sides."""
    if isinstance(value, np.generic) and np.isnan(value):  # with specific bits
        yield value
        return
    try:
        exact = _fitting(dtype, value)
    except (TensorlangError, ValueError, OverflowError, TypeError):
        return
    if dtype.is_bool:
        return
    if dtype.is_integer:
        low, high = dtype.limits
        beyond = (exact, exact - 1, exact + 1, -exact, 2 * exact, exact // 2)
        yield from (n for n in beyond if low <= n <= high)
        return
    number = np.array(exact, dtype.numpy)
    with np.errstate(all="ignore"):
        sides = [
            np.nextafter(number, np.array(s, dtype.numpy)) for s in (-np.inf, np.inf)
        ]
        every = np.array([number, *sides, -number, number * 2, number / 2])
    yield from (n for n in every.astype(dtype.numpy))


def _fitting(dtype: DType, value: Number) -> Number:
    """The value rounded or wrapped to a type."""
    number = value.item() if isinstance(value, np.generic) else value
    whole = dtype.is_integer and isinstance(number, float)
    return ir.Const(math.floor(number) if whole else number, dtype.scalar).value
